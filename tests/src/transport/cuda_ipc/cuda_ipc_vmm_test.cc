// Segments of the driver's VMM, where it refuses, is too old or is missing.
#include "src/device/cuda/vmm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/error.h"
#include "src/transport/cuda_ipc/segments/vmm_segments.h"
#include "tests/src/transport/cuda_ipc/cuda_ipc_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"

namespace layercast::cuda_ipc_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::HasSubstr;

// A driver of one device that has VMM and whose calls succeed, but for those that a test replaces.
VmmFunctions ADriver() {
  VmmFunctions driver;
  driver.get_error_string = [](CUresult, const char** words) {
    *words = "that did not work";
    return CUDA_SUCCESS;
  };
  driver.device_get_attribute = [](int* has, CUdevice_attribute, CUdevice) {
    *has = 1;
    return CUDA_SUCCESS;
  };
  driver.granularity = [](std::size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    *bytes = 4096;
    return CUDA_SUCCESS;
  };
  driver.create = [](CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long) {
    return CUDA_SUCCESS;
  };
  driver.export_handle = [](void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long) {
    return CUDA_SUCCESS;
  };
  driver.release = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  driver.import_handle = [](CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) { return CUDA_SUCCESS; };
  driver.reserve = [](CUdeviceptr* base, std::size_t, std::size_t, CUdeviceptr, unsigned long long) {
    *base = 4096;
    return CUDA_SUCCESS;
  };
  driver.free_address = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
  driver.map = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_SUCCESS;
  };
  driver.unmap = [](CUdeviceptr, std::size_t) { return CUDA_SUCCESS; };
  driver.set_access = [](CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) { return CUDA_SUCCESS; };
  return driver;
}

std::string WhyNotMapped(const VmmFunctions& driver, ErrorCode code) {
  const VmmSegments vmm(driver, 0);
  return ErrorOf([&] { static_cast<void>(vmm.Map(UniqueFd(), 8192)); }, code);
}

TEST(CudaIpcVmm, WhatCannotBeImportedIsUnsupportedAndOfAnotherSizeCorrupt) {
  EXPECT_EQ(WhyNotMapped(ADriver(), ErrorCode::kInternal), "no error");
  VmmFunctions sees_no_such_device = ADriver();
  sees_no_such_device.import_handle = [](CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType) {
    return CUDA_ERROR_INVALID_DEVICE;
  };
  EXPECT_EQ(WhyNotMapped(sees_no_such_device, ErrorCode::kUnsupported),
            "CUDA device 0: cuMemImportFromShareableHandle: that did not work");
  VmmFunctions short_segment = ADriver();
  short_segment.map = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(WhyNotMapped(short_segment, ErrorCode::kCorrupt), "CUDA device 0: cuMemMap: that did not work");
  VmmFunctions out_of_memory = ADriver();
  out_of_memory.reserve = [](CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  EXPECT_EQ(WhyNotMapped(out_of_memory, ErrorCode::kResourceExhausted),
            "CUDA device 0: cuMemAddressReserve: that did not work");
}

// The publisher then goes on with legacy handles.
TEST(CudaIpcVmm, AnOwnSegmentThatCannotBeMadeIsUnsupportedUnlessMemoryHasRunOut) {
  const auto why_not_made = [](const VmmFunctions& driver, ErrorCode code) {
    const VmmSegments vmm(driver, 0);
    return ErrorOf([&] { static_cast<void>(vmm.MakeSegment(8192)); }, code);
  };
  EXPECT_EQ(why_not_made(ADriver(), ErrorCode::kInternal), "no error");
  VmmFunctions driver = ADriver();
  driver.create = [](CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*, unsigned long long) {
    return CUDA_ERROR_INVALID_DEVICE;
  };
  EXPECT_EQ(why_not_made(driver, ErrorCode::kUnsupported), "CUDA device 0: cuMemCreate: that did not work");
  driver = ADriver();
  driver.reserve = [](CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(why_not_made(driver, ErrorCode::kUnsupported), "CUDA device 0: cuMemAddressReserve: that did not work");
  driver = ADriver();
  driver.map = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_EQ(why_not_made(driver, ErrorCode::kUnsupported), "CUDA device 0: cuMemMap: that did not work");
  driver.map = [](CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  EXPECT_EQ(why_not_made(driver, ErrorCode::kResourceExhausted), "CUDA device 0: cuMemMap: that did not work");
}

TEST(CudaIpcVmm, ADriverThatIsMissingOrTooOldIsNamed) {
  EXPECT_THAT(ErrorOf([] { LoadVmm("/nowhere/libcuda.so.1"); }, ErrorCode::kUnsupported),
              HasSubstr("/nowhere/libcuda.so.1"));
  const std::string old = test::FolderOfThisProgram() + "/libcuda_old.so";
  EXPECT_THAT(ErrorOf([&] { LoadVmm(old); }, ErrorCode::kUnsupported),
              HasSubstr("libcuda_old.so' has no cuMemGetAllocationGranularity"));
}
}  // namespace
}  // namespace layercast::cuda_ipc_channel
