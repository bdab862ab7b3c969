// A shared library that a test takes for the CUDA driver: one from before VMM.
extern "C" __attribute__((visibility("default"))) int cuGetErrorString() { return 0; }
extern "C" __attribute__((visibility("default"))) int cuDeviceGetAttribute() { return 0; }
