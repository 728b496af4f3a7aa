-- SPDX-License-Identifier: Apache-2.0
-- For wrk: posts the body of a file again and again; the last line of the output is one JSON object.
-- BODY: the file; JSON_SIZE: how many of its bytes are JSON.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = os.getenv("JSON_SIZE")
file:close()

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests": %d, "seconds": %.6f, "errors": {"connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}, ' ..
                         '"p50_ms": %.4f, "p99_ms": %.4f, "min_ms": %.4f}\n',
                         summary.requests, summary.duration / 1e6, e.connect, e.read, e.write, e.status, e.timeout,
                         latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.min / 1e3))
end
