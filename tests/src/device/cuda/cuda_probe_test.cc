#include "src/device/cuda/cuda_probe.h"

#include <gtest/gtest.h>

#include "layercast/error.h"
#include "src/device/cuda/cuda_stream.h"

namespace layercast {
namespace {

// Runs everywhere: a machine without a device says so, in words, and refuses a stream as an Error.
TEST(CudaProbe, FindsADeviceOrSaysWhyThereIsNone) {
  const CudaProbe probe = ProbeCuda();
  EXPECT_EQ(static_cast<bool>(probe), probe.why_none.empty()) << probe.why_none;
  if (probe) {
    EXPECT_EQ(CudaStream(probe.devices - 1).device(), probe.devices - 1);
  }
}

TEST(CudaProbe, ADeviceThatIsNotThereIsAnErrorThatNamesIt) {
  const int beyond = ProbeCuda().devices;
  try {
    const CudaStream stream(beyond);
    FAIL() << "there is no device " << beyond;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    EXPECT_NE(std::string(error.what()).find("CUDA device " + std::to_string(beyond)), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace layercast
