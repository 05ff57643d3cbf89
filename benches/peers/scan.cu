// CUB's device-wide sum and inclusive sum of 2^28 f32: a peer of kernels/examples/device_wide.rs. Prints one JSON row per line.
//
//     nvcc -O3 -std=c++17 -arch=sm_90 -o scan scan.cu && ./scan [repeats]
//
// Inputs are small integers, whose sums f32 holds exactly, so that results are compared bit for bit.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t error = (call);                                                    \
        if (error != cudaSuccess) {                                                    \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));        \
            std::exit(1);                                                              \
        }                                                                              \
    } while (0)

__global__ void fill(float* x, long n) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x)
        x[i] = (float)((i * 7 + i / 1000) % 3 - 1);
}

// The microseconds of each call, sorted; calls follow one another without a pause.
template <typename Call>
std::vector<float> timed(Call call, int repeats) {
    for (int i = 0; i < 3; ++i) CHECK(call());
    std::vector<cudaEvent_t> events(repeats + 1);
    for (auto& event : events) CHECK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(events[0]));
    for (int i = 1; i <= repeats; ++i) {
        CHECK(call());
        CHECK(cudaEventRecord(events[i]));
    }
    CHECK(cudaDeviceSynchronize());
    std::vector<float> us;
    for (int i = 0; i < repeats; ++i) {
        float ms;
        CHECK(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
        us.push_back(ms * 1e3f);
    }
    std::sort(us.begin(), us.end());
    return us;
}

void report(const char* suite, long n, const std::vector<float>& us, double bytes) {
    std::printf("{\"suite\": \"%s\", \"who\": \"cub\", \"shape\": {\"n\": %ld}, \"us\": %.3f, \"best_us\": %.3f, \"samples_us\": [",
                suite, n, us[us.size() / 2], us[0]);
    for (size_t i = 0; i < us.size(); ++i) std::printf("%s%.3f", i ? ", " : "", us[i]);
    std::printf("], \"bytes\": %.0f, \"flops\": %ld}\n", bytes, n);
}

int main(int count, char** arguments) {
    const int repeats = count > 1 ? std::max(1, std::atoi(arguments[1])) : 20;
    const long n = 1L << 28;
    float *x, *y;
    CHECK(cudaMalloc(&x, n * sizeof(float)));
    CHECK(cudaMalloc(&y, n * sizeof(float)));
    fill<<<1024, 256>>>(x, n);

    std::vector<float> host(n), found(n);
    CHECK(cudaMemcpy(host.data(), x, n * sizeof(float), cudaMemcpyDeviceToHost));
    void* space = nullptr;
    size_t reduce_bytes = 0, scan_bytes = 0;
    CHECK(cub::DeviceReduce::Sum(nullptr, reduce_bytes, x, y, n));
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, scan_bytes, x, y, n));
    size_t bytes = std::max(reduce_bytes, scan_bytes);
    CHECK(cudaMalloc(&space, bytes));

    auto reduced = timed([&] { return cub::DeviceReduce::Sum(space, bytes, x, y, n); }, repeats);
    float sum;
    CHECK(cudaMemcpy(&sum, y, sizeof(float), cudaMemcpyDeviceToHost));
    auto scanned = timed([&] { return cub::DeviceScan::InclusiveSum(space, bytes, x, y, n); }, repeats);
    CHECK(cudaMemcpy(found.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost));
    float total = 0;
    for (long i = 0; i < n; ++i) {
        total += host[i];
        if (found[i] != total) {
            std::fprintf(stderr, "inclusive sum %ld is %g, not %g\n", i, found[i], total);
            return 1;
        }
    }
    if (sum != total) {
        std::fprintf(stderr, "the sum is %g, not %g\n", sum, total);
        return 1;
    }
    report("reduce", n, reduced, 4.0 * n);
    report("scan", n, scanned, 8.0 * n);
}
