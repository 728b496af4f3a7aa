# SPDX-License-Identifier: Apache-2.0
"""What `onnxfuse inspect --html` writes: well-formed, self-contained, and safe whatever the model's names are.

    python report_page.py ONNXFUSE FOLDER
"""
import html.parser
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts"))
import onnx_writer as onnx  # noqa: E402

VOID = {"meta", "input", "br", "hr", "img", "link"}
HOSTILE = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--", "]]>", "&amp;&lt;", "\\u003c", "\u2028line", "{{data}}", "@DATA@", "a\nb\tc", "ünïcode/名前"]


class Page(html.parser.HTMLParser):
    """Elements closed as they were opened, and what they refer to."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.problems, self.references, self.scripts, self.ids = [], [], [], [], set()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((attributes.get("type", ""), []))
        if attributes.get("id") in self.ids:
            self.problems.append("two elements with the id %s" % attributes["id"])
        if "id" in attributes:
            self.ids.add(attributes["id"])
        for name, value in attributes.items():
            if name in ("src", "href", "action", "srcset", "data") and not (value or "").startswith("#"):
                self.references.append("%s %s=%s" % (tag, name, value))
            if name.startswith("on"):
                self.problems.append("%s %s" % (tag, name))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append("</%s> closes nothing" % tag)

    def handle_data(self, text):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1].append(text)


def check_page(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    page = Page()
    page.feed(text)
    page.close()
    assert not page.problems and not page.open, (page.problems, page.open)
    assert not page.references, page.references
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|innerHTML|document\.write|eval\(", text.split('id="data"')[0] + text.split("</script>", 1)[1])
    assert [kind for kind, _ in page.scripts] == ["application/json", ""], page.scripts
    island = "".join(page.scripts[0][1])
    assert "<" not in island
    for target in re.findall(r'href="#([^"]*)"', text):
        assert target in page.ids, target
    return json.loads(island)


def check_report(data):
    plan = data["report"]["plan"]
    assert plan["steps"] and plan["buffers"]
    for number, step in enumerate(plan["steps"]):
        assert step["step"] == number and step["nodes"] and step["kind"] and step["device"], step
        assert step["time"]["count"] >= 5 and step["time"]["min_us"] <= step["time"]["median_us"] <= step["time"]["total_us"], step
        assert all(-1 <= buffer < len(plan["buffers"]) for buffer in step["inputs"] + step["outputs"]), step
        assert step["kind"] != "kernel" or 0 <= step["kernel"] < len(data["report"]["kernels"]), step
    placed = [b for b in plan["buffers"] if "offset" in b]
    for buffer in placed:
        assert buffer["offset"] + buffer["bytes"] <= plan["arena"][buffer["place"]], buffer
        assert 0 <= buffer["first"] <= buffer["last"] < len(plan["steps"]), buffer
    heads = [b for b in placed if "inplace" not in b and not any(o.get("inplace") == b["buffer"] for o in placed)]
    for a in heads:  # what lives at the same time stands apart
        for b in heads:
            together = a is not b and a["first"] <= b["last"] and b["first"] <= a["last"] and a["place"] == b["place"] and a["bytes"] and b["bytes"]
            assert not together or a["offset"] + a["bytes"] <= b["offset"] or b["offset"] + b["bytes"] <= a["offset"], (a, b)


def hostile_model(path):
    writer = onnx.Writer()
    before = writer.input("x", [4, 8])
    for number, name in enumerate(HOSTILE):
        output = "%s %d" % (name, number)
        operator = ["Relu", "Exp", "Softmax"][number % 3]
        writer.nodes.append(onnx.block(1, before) + onnx.block(2, output) + onnx.block(3, "node " + name) + onnx.block(4, operator))
        before = output
    writer.outputs.append(onnx.value_info(before, "float32", [4, 8]))
    with open(path, "wb") as file:
        file.write(writer.bytes())


def main(program, folder):
    os.makedirs(folder, exist_ok=True)
    models = os.path.join(os.path.dirname(__file__), "..", "models")
    hostile, page = os.path.join(folder, "<b>&'.onnx"), os.path.join(folder, "page.html")
    hostile_model(hostile)
    runs = [
        [hostile],
        [os.path.join(models, "classifier/model.onnx"), "--shape", "x=4x16"],
        [os.path.join(models, "names/model.onnx"), "--input", "words=text:<script>"],
    ]
    for arguments in runs:
        made = subprocess.run([program, "inspect", *arguments, "--html", page], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        data = check_page(page)
        assert data["model"] == os.path.basename(arguments[0])
        check_report(data)
    subprocess.run([program, "inspect", hostile, "--html", page], check=True, capture_output=True)
    names = {node["name"] for node in check_page(page)["report"]["model"]}
    assert names == {"node " + name for name in HOSTILE}, names
    before = open(page, "rb").read()
    failed = subprocess.run([program, "inspect", os.path.join(models, "unsupported/model.onnx"), "--html", page], capture_output=True)
    assert failed.returncode == 3 and open(page, "rb").read() == before  # whole or not at all
    assert subprocess.run([program, "inspect", hostile, "--html", os.path.join(folder, "no/such/folder/page.html")], capture_output=True).returncode == 4
    print("%d pages are well-formed and refer to nothing outside" % (len(runs) + 1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
