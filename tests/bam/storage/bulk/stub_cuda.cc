// libcuda.so.1 of a machine without a GPU: every call says CUDA_ERROR_NOT_INITIALIZED. kvikio then takes all memory for
// the host's, and reads to it. Its shim looks all these names up (kvikio/shim/cuda.hpp).
#define STUB(name) \
  extern "C" int name() { return 3; }
STUB(cuInit) STUB(cuGetErrorName) STUB(cuGetErrorString)
STUB(cuMemHostAlloc) STUB(cuMemFreeHost) STUB(cuMemHostRegister_v2) STUB(cuMemHostUnregister)
STUB(cuMemcpyHtoDAsync_v2) STUB(cuMemcpyDtoHAsync_v2) STUB(cuMemcpyAsync)
STUB(cuPointerGetAttribute) STUB(cuPointerGetAttributes) STUB(cuMemGetAddressRange_v2)
STUB(cuCtxCreate_v2) STUB(cuCtxCreate_v3) STUB(cuCtxCreate_v4) STUB(cuCtxDestroy_v2)
STUB(cuCtxPushCurrent_v2) STUB(cuCtxPopCurrent_v2) STUB(cuCtxGetCurrent) STUB(cuCtxGetDevice)
STUB(cuDeviceGet) STUB(cuDeviceGetCount) STUB(cuDeviceGetAttribute)
STUB(cuDevicePrimaryCtxRetain) STUB(cuDevicePrimaryCtxRelease_v2)
STUB(cuStreamSynchronize) STUB(cuStreamCreate) STUB(cuStreamDestroy_v2) STUB(cuLaunchHostFunc)
STUB(cuEventSynchronize) STUB(cuEventCreate) STUB(cuEventDestroy_v2) STUB(cuEventRecord) STUB(cuEventQuery)
extern "C" int cuDriverGetVersion(int* version) { return *version = 0; }
