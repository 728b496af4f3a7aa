#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program from outside: exit codes, what goes to standard output and what to standard error, files.
#   program.sh BINARY          (in the project's folder)
set -u
onnxfuse=$1
models=tests/models
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export XDG_CACHE_HOME=$scratch/cache
passed=0 failed=0

# expect "what must hold" CODE ARGUMENT...: runs onnxfuse; leaves its output in $out and $err.
expect() {
  local must=$1 code=$2 got
  shift 2
  "$onnxfuse" "$@" >"$scratch/out" 2>"$scratch/err"
  got=$?
  out=$(cat "$scratch/out") err=$(cat "$scratch/err")
  if [ $got = "$code" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAIL  %s: onnxfuse %s\n      exit code %s, expected %s\n%s\n' "$must" "$*" "$got" "$code" "$err"
  fi
}

# holds "what must hold" TEXT PATTERN
holds() {
  if [[ $2 =~ $3 ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAIL  %s: no match of %s in\n%s\n' "$1" "$3" "$2"
  fi
}

last_line() { printf '%s' "${out##*$'\n'}"; }

expect "no command is wrong usage" 2
expect "help is there" 0 --help
for command in run bench test inspect compare optimize train quantize devices; do
  holds "help lists $command" "$out" "onnxfuse $command"
done
for command in run bench test inspect compare optimize train quantize devices; do
  expect "$command explains itself" 0 $command --help
  holds "help of $command names its flags" "$out" "--json"
done
expect "help of inputs" 0 run --help
holds "it tells of pictures" "$out" 'image:FILE.*mean='
expect "the manual page" 0 help --man
holds "the manual page tells of pictures" "$out" 'image:FILE.*mean='
for command in run bench test inspect optimize compare train quantize devices; do
  holds "the manual page has $command" "$out" ".SS onnxfuse $command"
done
if command -v mandoc >/dev/null; then
  complaints=$(mandoc -T lint -W error "$scratch/out" 2>&1)
  holds "the manual page is well formed" "${complaints:-none}" "^none$"
fi
expect "the version" 0 --version
expect "an unknown command is wrong usage" 2 frobnicate
expect "an unknown flag is wrong usage" 2 run $models/classifier/model.onnx --frobnicate
expect "a flag with a typing mistake" 2 run $models/classifier/model.onnx --shpae x=1x16
holds "the nearest flag is told" "$err" 'do you mean --shape\?'
expect "a command with a typing mistake" 2 bnech $models/classifier/model.onnx
holds "the nearest command is told" "$err" 'do you mean bench\?'
expect "a flag without its value is wrong usage" 2 run $models/classifier/model.onnx --threads
expect "a number out of range is wrong usage" 2 run $models/classifier/model.onnx --threads 0
expect "a device that does not exist is wrong usage" 2 run $models/classifier/model.onnx --shape x=2x16 --device abacus
expect "devices are listed" 0 devices --json
holds "devices as JSON" "$(last_line)" '^\{"devices":\[.*\{"name":"cpu"'

expect "recorded outputs agree" 0 test $models/classifier $models/loop $models/names --json
holds "test says how many passed" "$out" '3 passed, 0 failed'
holds "test tells which output is random" "$out" 'random, so compared by type and shape: noise'
holds "test ends with JSON" "$(last_line)" '^\{"passed":3,"failed":0'

cp -r $models/classifier "$scratch/changed"
printf '\x00\x00\x00\x40' | dd of="$scratch/changed/test_data_set_1/output_0.pb" bs=1 seek=$(($(stat -c %s $models/classifier/test_data_set_1/output_0.pb) - 4)) conv=notrunc status=none
expect "a changed output differs" 1 test "$scratch/changed"
holds "the first difference is named" "$err" 'test_data_set_1: output "scores": \[4, 9\]: got .* expected 2 '
expect "an operator of an unknown domain is not supported" 3 test $models/unsupported
holds "the operator is named" "$err" Frobnicate
expect "of several folders the highest code counts" 3 test "$scratch/changed" $models/unsupported $models/loop
expect "a folder that is not there" 4 test "$scratch/nothing"
mkdir -p "$scratch/bad/test_data_set_0"
printf 'no model' >"$scratch/bad/model.onnx"
expect "a malformed model" 4 test "$scratch/bad"
cp -r $models/loop "$scratch/short"
printf '\xff\xff\xff' >"$scratch/short/test_data_set_0/input_0.pb"
expect "a malformed input" 4 test "$scratch/short"

model=$models/classifier/model.onnx
expect "a model alone" 0 run $model --json
holds "sizes that nothing says are 1" "$out" 'scores  float32\[1, 10\]'
holds "they are told" "$err" 'assumed sizes: batch = 1 \(of x\); --size batch=8 sets it'
holds "and so is what was drawn" "$err" 'random numbers for x'
holds "and both in JSON" "$(last_line)" '"assumed_sizes":\{"batch":1\},"random_inputs":\["x"\]\}$'
alone=$out
expect "the same again" 0 run $model
[ "$out" = "${alone%$'\n'*}" ]
holds "random numbers repeat" $? '^0$'
expect "a size by its name" 0 run $model --size batch=3 --json
holds "the size is taken" "$out" 'scores  float32\[3, 10\]'
holds "a size that is said is not assumed" "$(last_line)" '"assumed_sizes":\{\},"random_inputs":\["x"\]\}$'
expect "a size that no input has" 2 run $model --size bacth=3
holds "the sizes that there are, and the nearest" "$err" 'do you mean batch\?\); the model.s free sizes are batch'
expect "a size and a shape that contradict it" 2 run $model --size batch=3 --shape x=2x16
holds "the contradiction is told" "$err" '--size batch=3 contradicts --shape of "x": there it is 2'
expect "a size and a given value that contradict it" 2 run $model --size batch=3 --input x=$models/classifier/test_data_set_1/input_0.pb
holds "the given size is told" "$err" '--size batch=3 contradicts the value given for "x": there it is 5; the model.s free sizes are batch'
expect "a size twice" 2 run $model --size batch=3,batch=4
for wrong in batch batch= batch=-1 batch=x =3 batch=3,; do expect "a size that is none: $wrong" 2 run $model --size $wrong; done
expect "a shape twice" 2 run $model --shape x=1x16 --shape x=2x16
printf '{"shapes": {"hints": [{"batch": 4}, {"batch": 9}]}}' >"$scratch/hints.json"
expect "sizes that the policy hints" 0 run $model --policy "$scratch/hints.json" --json
holds "the first hint comes before 1" "$out" 'scores  float32\[4, 10\]'
holds "it is told" "$err" 'batch = 4 \(the policy.s hint of x\)'
holds "and in JSON" "$(last_line)" '"assumed_sizes":\{"batch":4\}'
expect "a size comes before a hint" 0 run $model --policy "$scratch/hints.json" --size batch=2
holds "the size is taken" "$out" 'scores  float32\[2, 10\]'
for command in bench inspect compare; do
  more=(--json)
  [ $command != bench ] || more+=(--seconds 0.01)
  [ $command != inspect ] || more+=(--html "$scratch/page.html")
  expect "$command of a model alone" 0 $command $model "${more[@]}"
  holds "$command tells the sizes" "$err" 'assumed sizes: batch = 1 \(of x\)'
  holds "$command tells them in JSON" "$(last_line)" '"assumed_sizes":\{"batch":1\},"random_inputs":\["x"\]\}$'
  expect "$command with a size" 0 $command $model --size batch=2 "${more[@]}"
  expect "$command with a size that no input has" 2 $command $model --size n=2 "${more[@]}"
done
expect "inspect takes no size without a run" 2 inspect $model --size batch=2

# bfloat16 rounds to 8 bits; what is rounded meets two products and a softmax.
expect "a model of float32 in bfloat16 is near to it" 0 compare $model --precision bf16 --size batch=64 --rtol 0.03
holds "compare says which" "$out" 'on cpu, precision bf16'
expect "but not the same" 1 compare $model --precision bf16 --size batch=64 --rtol 1e-5
expect "products are computed so" 0 inspect $model --precision bf16 --after plan
holds "the plan says it" "$out" 'anchor matmul \(packed, bf16\)'
for command in run bench inspect compare; do
  expect "$command: there is no such precision" 4 $command $model --precision bf17
  holds "$command tells which there are" "$err" 'f32, f16 and bf16'
done

sizes=$models/sizes/model.onnx
expect "sizes without a name, of names that are no identifiers, of sequences" 0 run $sizes --json
holds "each size is told once, with its inputs" "$err" 'rows.0 = 1 \(of a, b\), a_1 = 1 \(of a\), width = 1 \(of b, ids\), h"ö.+ = 1 \(of odd\), height = 224 \(of picture\); --size rows.0=8 sets one'
expect "several sizes" 0 run $sizes --size rows.0=2,width=3 --size a_1=3,height=5
holds "each goes to all its inputs" "$out" 'sum  float32\[2, 3\].*marked  float32\[2, 3\].*pixels  float32\[1, 3, 5, 4\]'
expect "a shape fixes the sizes of other inputs" 0 run $sizes --shape b=2x3
holds "they follow it" "$out" 'sum  float32\[2, 3\]'
expect "sizes that do not fit together" 4 run $sizes --size width=3,a_1=2
holds "the failure names the sizes that were assumed" "$err" 'broadcast.*; sizes that were assumed: rows.0 = 1 \(of a, b\), h"ö'
holds "and what was drawn" "$err" 'it ran on random numbers for a, b, ids, items, odd, picture$'
expect "a name with a quote, a letter beyond ASCII and a backslash" 0 run $sizes --size 'h"ö\=3'
holds "the size is taken" "$out" 'odder  float32\[3\]'
expect "random numbers for a shape" 0 run $model --shape x=3x16 --output-dir "$scratch/deep/out" --json
holds "an output is shown" "$out" 'scores  float32\[3, 10\]'
holds "run ends with JSON" "$(last_line)" '^\{"device":"cpu",.*"name":"scores"'
holds "the output is written" "$(head -c 6 "$scratch/deep/out/scores.npy" | tail -c 5)" NUMPY
expect "a written output is a good input" 2 run $model --input "scores=$scratch/deep/out/scores.npy"
expect "an input of another shape does not fit" 4 run $model --input "x=$scratch/deep/out/scores.npy"
expect "a recorded input" 0 run $model --input x=$models/classifier/test_data_set_1/input_0.pb
expect "a missing input file" 4 run $model --input x="$scratch/nothing.npy"
expect "a shape of a name that the model lacks" 2 run $model --shape y=1
expect "zeros" 0 run $model --shape x=1x16 --input x=zeros
printf '%s\n' zero one two three four five six seven eight nine >"$scratch/labels"
expect "labels" 0 run $model --input x=$models/classifier/test_data_set_0/input_0.pb --labels "$scratch/labels"
holds "the best label comes with its share" "$out" '(zero|one|two|three|four|five|six|seven|eight|nine) [0-9.]+ %'
expect "text and a name with a slash" 0 run $models/names/model.onnx --input words=text:hello --output-dir "$scratch/names"
[ -f "$scratch/names/the_words.npy" ]
holds "unsafe characters of names are replaced" $? '^0$'
expect "a folder that cannot be made" 4 run $model --shape x=1x16 --output-dir "$scratch/labels/x"

printf 'P6 2 1 255\n\377\063\000\000\146\314' >"$scratch/two.ppm"
expect "a picture" 0 run $sizes --input picture=image:"$scratch/two.ppm",scale=1/51,order=bgr --output-dir "$scratch/pictures" --json
holds "its free height follows its width" "$out" 'pixels  float32\[1, 3, 2, 4\]  0 1 3 4 0 1 '
holds "a size that it has is not assumed" "$(last_line)" '"assumed_sizes":\{"rows.0":1,"a_1":1,"width":1,"h\\"ö[^:]*":1\},'
expect "a picture in a size that is said" 0 run $sizes --input picture=image:"$scratch/two.ppm" --size height=1
holds "the size is taken" "$out" 'pixels  float32\[1, 3, 1, 4\]'
expect "a picture in a shape that is said" 0 run $sizes --input picture=image:"$scratch/two.ppm" --shape picture=1x3x5x4
holds "the shape is taken" "$out" 'pixels  float32\[1, 3, 5, 4\]'
expect "a picture that is none" 4 run $sizes --input picture=image:"$scratch/labels"
holds "input, file and reason are named" "$err" 'input "picture": ".*/labels": .*'
expect "a picture that is not there" 4 run $sizes --input picture=image:"$scratch/nothing.png"
holds "the file is named" "$err" 'input "picture": .*/nothing.png" cannot be read'
expect "a picture for integers" 4 run $sizes --input ids=image:"$scratch/two.ppm"
holds "the type is named" "$err" 'input "ids": ".*/two.ppm": a picture is uint8 or floats, this input is int64'
expect "a picture for a sequence" 4 run $sizes --input items=image:"$scratch/two.ppm"
expect "a picture in a shape of no channels" 4 run $sizes --input picture=image:"$scratch/two.ppm" --shape picture=1x2x5x4
holds "the channels are named" "$err" 'input "picture": ".*/two.ppm": a picture has 1 or 3 channels'
expect "a setting of pictures that does not exist" 2 run $sizes --input picture=image:"$scratch/two.ppm",means=1
holds "the nearest setting is told" "$err" 'input "picture": image: has no setting "means" \(do you mean mean\?\)'

expect "bench" 0 bench $model --shape x=2x16 --seconds 0.02 --json --profile "$scratch/trace.json"
holds "bench ends with JSON" "$(last_line)" '^\{"load_ms":[0-9.]+,"first_ms":[0-9.]+,"median_ms":[0-9.]+,"min_ms":[0-9.]+,"p99_ms":[0-9.]+,"runs":[0-9]+,"peak_rss_mb":[0-9.]+,"kernels_compiled":[0-9]+,"kernels_cached":[0-9]+,"compile_ms":[0-9.]+,"device":"cpu","steps":\[.*\],"other_steps_ms":[0-9.]+,"least_ms":[0-9.]+,"machine":\{.*\},"assumed_sizes":\{\},"random_inputs":\["x"\]\}$'
[ -s "$scratch/trace.json" ]
holds "the profile is written" $? '^0$'
printf '[{"x": [1, 16]}, {"x": [7, 16]}]' >"$scratch/shapes.json"
# dense_1 is [2, 16] by [16, 16] with bias and ReLU; dense_2 [2, 16] by [16, 10] with bias; Softmax five operations, of which exp is 13.
for counted in '"node":"dense_1","nodes":3,"bytes":1344,"read":1216,"written":128,"work":1088,"work_by_type":\{"f32":1088\}' \
  '"node":"dense_2","nodes":1,"bytes":888,"read":808,"written":80,"work":660,' \
  '"node":"Softmax#6","nodes":1,"bytes":160,"read":80,"written":80,"work":340,'; do
  holds "bytes and work are those counted by hand" "$(last_line)" "$counted"
done
holds "steps have times beside their limits" "$(last_line)" '"least_us":[0-9.]+,"bound":"(memory|arithmetic)","of_limit":[0-9.]+,"slices":1,.*"time_ms":[0-9.]+'
expect "bench as text" 0 bench $model --shape x=2x16 --seconds 0.02
holds "the machine is told" "$out" 'machine +.*, [0-9]+ cores?, [0-9]+ threads?: from memory [0-9.]+ [GM]B/s'
holds "steps are listed with their times" "$out" 'anchor matmul \(packed\) .*%.* dense_1 and 2 more'
holds "and all together" "$out" ' all +4 .*100.0%'
expect "some steps alone" 0 bench $model --shape x=2x16 --seconds 0.02 --top 1
holds "the others are one" "$out" 'others +3 '
expect "no steps" 0 bench $model --shape x=2x16 --seconds 0.02 --top 0 --json
holds "the list is empty" "$(last_line)" '"steps":\[\],"other_steps_ms":[0-9.]+'
limits=$(ls "$scratch"/cache/onnxfuse/machine-*.limits)
before=$(cat "$limits")
expect "the limits are remembered" 0 bench $model --shape x=2x16 --seconds 0.02
[ "$before" = "$(cat "$limits")" ]
holds "as they were" $? '^0$'
printf 'damaged' >"$limits"
expect "damaged limits" 0 bench $model --shape x=2x16 --seconds 0.02
holds "are replaced" "$(head -n 1 "$limits")" '^onnxfuse limits 3 [0-9a-f]{16}$'
before=$(cat "$limits")
expect "limits are measured anew" 0 bench $model --shape x=2x16 --seconds 0.02 --measure-machine
[ "$before" != "$(cat "$limits")" ]
holds "on demand" $? '^0$'
printf '{"cache": {"directory": "/dev/null/nowhere"}}' >"$scratch/nowhere.json"
expect "without a folder they are measured each time" 0 bench $model --shape x=2x16 --seconds 0.02 --policy "$scratch/nowhere.json"
holds "and told" "$out" 'machine +.*from memory'

expect "the least time before a run" 0 inspect $model --roofline --size batch=2 --json
holds "counts are those of a run" "$(last_line)" '"node":"dense_1","nodes":3,"bytes":1344,"read":1216,"written":128,"work":1088,'
holds "nothing was run" "$(last_line)" '"dense_2".*"totals":\{"steps":4,"unknown":0,"bytes":[0-9]+,'
[[ $(last_line) != *time_us* ]]
holds "so there are no times" $? '^0$'
expect "as text, for more threads than cores" 0 inspect $model --roofline --size batch=100000 --threads 64
holds "the machine is counted for more cores" "$out" 'counted [0-9.]+ times, for 64 threads'
holds "a large step keeps 64 threads busy" "$out" 'anchor matmul \(packed\) .* [0-9]{3,} +0.0% +[0-9].[0-9]% +dense_1'
holds "the whole is told" "$out" 'at least [0-9.]+ us, .*with 64 threads that wait for the one with most to do [0-9.]+ us'
expect "a small one none" 0 inspect $model --roofline --threads 64
holds "its slice is one" "$out" 'anchor matmul \(packed\) .* 1 +100.0% +98.4% +dense_1'
expect "a page and a roofline" 2 inspect $model --roofline --html "$scratch/page.html"
expect "a stage and a roofline" 2 inspect $model --roofline --plan
expect "a size that no input has" 2 inspect $model --roofline --size n=2
expect "steps whose sizes a run finds out" 0 inspect $models/loop/model.onnx --roofline
expect "bench over shapes" 0 bench $model --shape-list "$scratch/shapes.json" --seconds 0.02 --json
holds "a new batch compiles nothing" "$(last_line)" '"shapes":\[\{.*\},\{"first_ms":[0-9.]+,"median_ms":[0-9.]+,"kernels_compiled":0,"assumed_sizes":\{\},"random_inputs":\["x"\]\}\]'
expect "a malformed list of shapes" 4 bench $model --shape-list "$scratch/labels"

expect "inspect" 0 inspect $model
expect "inspect shows a stage" 0 inspect $model --after import --json
expect "a stage that does not exist is wrong usage" 2 inspect $model --after frobnicate
expect "inspect draws" 0 inspect $model --after import --dot
holds "Graphviz input" "$out" '^digraph'
for what in plan kernels llvm assembly; do expect "inspect --$what" 0 inspect $model --$what; done

# What is found out before the work, and what would be lost.
cp $model "$scratch/model.onnx"
mkfifo "$scratch/pipe"
expect "a compiled model in the model's place" 2 compile "$scratch/model.onnx" -o "$scratch/./model.onnx"
for report in "inspect --html" "bench --seconds 0.01 --profile"; do
  read -ra words <<<"$report"
  expect "$report in the model's place" 2 "${words[0]}" "$scratch/model.onnx" "${words[@]:1}" "$scratch/./model.onnx"
  holds "$report says so" "$err" 'is the file of the model'
  expect "$report in the place of no file" 4 "${words[0]}" "$scratch/model.onnx" "${words[@]:1}" "$scratch/pipe"
  [ -p "$scratch/pipe" ]
  holds "which stays" $? '^0$'
done
cmp -s $model "$scratch/model.onnx"
holds "the model stays" $? '^0$'
expect "a compiled model" 0 compile "$scratch/model.onnx" -o "$scratch/model.ofx"
for command in "optimize" "quantize --int4" "differentiate" "train --data $scratch/none.npz"; do
  read -ra words <<<"$command"
  expect "$command of a compiled model" 2 "${words[0]}" "$scratch/model.ofx" "${words[@]:1}" -o "$scratch/never.onnx"
  holds "$command says what it is" "$err" 'is a compiled model: the ONNX file'
  expect "$command into a folder that is not there" 4 "${words[0]}" $model "${words[@]:1}" -o "$scratch/none/never.onnx"
  holds "$command names the file and why" "$err" '/none/never.onnx" cannot be written: No such file'
  expect "$command into a device" 4 "${words[0]}" $model "${words[@]:1}" -o /dev/null
  holds "$command says that it is one" "$err" 'it is no regular file'
done
expect "a loss that is many numbers" 2 differentiate $model --loss scores -o "$scratch/never.onnx"
holds "is told with its shape" "$err" '"scores" f32\[batch, 10\] is no single number'
mkdir -p "$scratch/asked/inputs"
cp -r $models/classifier/test_data_set_0 "$scratch/asked/inputs"
printf '{"precision": "bf16", "tolerance": 0.5, "check": {"inputs": "inputs"}}' >"$scratch/asked/policy.json"
expect "recorded inputs beside a policy that a flag changes" 0 compare $model --policy "$scratch/asked/policy.json" --seed 3 --rtol 0.1
expect "weights in narrow numbers" 0 quantize $model --int4 -o "$scratch/narrow.onnx"
for form in --int4 --bf16 "--int8 --inputs $models/classifier"; do
  read -ra words <<<"$form"
  expect "again: ${words[0]}" 3 quantize "$scratch/narrow.onnx" "${words[@]}" -o "$scratch/never.onnx"
  holds "there is nothing left: ${words[0]}" "$err" 'there is nothing to quantize'
done
expect "a policy without regions" 2 optimize $model --policy "$scratch/hints.json" -o "$scratch/never.onnx"
holds "is for these alone" "$err" '--policy is for --regions'
expect "a shape that ends too soon" 2 run $model --shape x=2x
holds "says so" "$err" 'a size is missing at its end'
expect "a shape that a constant refuses" 4 run $model --shape x=2x15
holds "names the number once" "$err" '"x" has size 15 in axis 1, but 16 is declared'
for setting in ONNXFUSE_DEBUG=abc ONNXFUSE_VERIFY=-1 ONNXFUSE_GENERATOR=junk; do
  out=$(env $setting "$onnxfuse" run $model 2>&1)
  holds "a wish that is none is told: $setting" "$out" "onnxfuse: ${setting%=*}: .*\"${setting#*=}\".* passed over"
done

printf '{"fusion": {"enable": 1}}' >"$scratch/policy.json"
expect "a policy of a wrong type" 4 run $model --shape x=1x16 --policy "$scratch/policy.json"
holds "the policy's place is named" "$err" 'fusion.enable'
printf '{"rules": [{"match": {"name": "nobody*"}, "fuse": false}]}' >"$scratch/policy.json"
expect "a rule that no node meets" 4 run $model --shape x=1x16 --policy "$scratch/policy.json"
holds "the policy's file is named" "$err" 'policy.json: rules\[0\].match: no node of the model matches'
expect "the same with a precision beside it" 4 run $model --shape x=1x16 --policy "$scratch/policy.json" --precision bf16
holds "the policy's file is named then, too" "$err" 'policy.json: rules\[0\].match: no node of the model matches'
printf '{"rules": [{"match": {"name": "block[0*"}, "fuse": false}]}' >"$scratch/policy.json"
expect "a rule whose pattern is none" 4 run $model --shape x=1x16 --policy "$scratch/policy.json"
holds "the pattern is told" "$err" 'policy.json: rules\[0\].match.name: no pattern for names: "block\[0\*" has \[ without \]'
printf '{"fusion": {"enable": false}}' >"$scratch/policy.json"
expect "a policy" 0 test $models/classifier --policy "$scratch/policy.json"
"$onnxfuse" --help >/dev/full 2>/dev/null
holds "a full disk is a failure" $? '^5$'

echo "$passed passed, $failed failed"
[ $failed = 0 ]
