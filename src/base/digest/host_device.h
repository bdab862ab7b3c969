// Marks for code that a CUDA compiler compiles for the device as well. To any other compiler they mean nothing. Such
// code is plain C++17: no standard library, no exceptions.
#pragma once

#ifdef __CUDACC__
#define LAYERCAST_HOST_DEVICE __host__ __device__
// Put before a loop over an array that is to stay in registers: registers need constant indices, so loops are unrolled.
#define LAYERCAST_UNROLL _Pragma("unroll")
#else
#define LAYERCAST_HOST_DEVICE
#define LAYERCAST_UNROLL
#endif
