/* SPDX-License-Identifier: Apache-2.0 */
// As classify.c, in C++: handles free themselves, a status is an exception.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <onnxfuse.h>
#include <stdexcept>
#include <vector>

struct Free {
    void operator()(OnnxfuseSession *session) const { onnxfuse_session_close(session); }
    void operator()(OnnxfuseValue *value) const { onnxfuse_value_free(value); }
    void operator()(StatusDetail *status) const { onnxfuse_status_free(status); }
};
template <typename T> using Handle = std::unique_ptr<T, Free>;

static void check(OnnxfuseStatus status) {
    Handle<StatusDetail> owner(status);
    if (status) throw std::runtime_error(onnxfuse_status_message(status));
}

int main(int argc, char **argv) try {
    std::vector<float> numbers;
    for (int i = 2; i < argc; i++) numbers.push_back(std::strtof(argv[i], nullptr));
    const int64_t dims[] = {1, static_cast<int64_t>(numbers.size())};
    OnnxfuseSession *opened = nullptr;
    OnnxfuseValue *made = nullptr, *result = nullptr;
    check(onnxfuse_session_open(argc > 1 ? argv[1] : "model.onnx", nullptr, &opened));
    Handle<OnnxfuseSession> session(opened);
    check(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, numbers.data(), &made));
    Handle<OnnxfuseValue> input(made);
    const OnnxfuseValue *const inputs[] = {input.get()};
    check(onnxfuse_session_run(session.get(), inputs, &result));
    Handle<OnnxfuseValue> output(result);
    auto scores = static_cast<const float *>(onnxfuse_value_data(output.get()));
    auto best = std::max_element(scores, scores + onnxfuse_value_count(output.get()));
    std::printf("class %d, score %.3f\n", static_cast<int>(best - scores), *best);
} catch (const std::exception &error) { return std::fprintf(stderr, "%s\n", error.what()), 1; }
