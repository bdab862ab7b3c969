// For code that a CUDA compiler makes for the device as well; to any other compiler the marks say nothing. Such code is
// plain C++17: no standard library, no exceptions.
#pragma once

#ifdef __CUDACC__
#define LAYERCAST_HOST_DEVICE __host__ __device__
// Before a loop over an array that is to stay in registers: there an index must be a constant.
#define LAYERCAST_UNROLL _Pragma("unroll")
#else
#define LAYERCAST_HOST_DEVICE
#define LAYERCAST_UNROLL
#endif
