// What tests of a device begin with: it is there, or the test is skipped and says why.
#pragma once

#include <gtest/gtest.h>

#include "src/device/cuda/cuda_probe.h"

#define LAYERCAST_NEEDS_CUDA()                                                     \
  do {                                                                             \
    const ::layercast::CudaProbe layercast_probe = ::layercast::ProbeCuda();       \
    if (!layercast_probe) GTEST_SKIP() << "no CUDA: " << layercast_probe.why_none; \
  } while (false)
