// Noise on norms that lie on a device: each is read back, drawn on the host and written again, before its layer is
// closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/device/device_test.h"
#include "tests/support/noise/slow_noise.h"
#include "tests/support/reload/device_rig.h"

namespace layercast {
namespace {

using testing::DeviceRig;
using testing::Differences;
using testing::EagerSource;
using ::testing::IsEmpty;

class NoiseOnDevice : public testing::DeviceTest {};

TEST_F(NoiseOnDevice, EveryPolicyServesWhatIsDrawnOnTheHost) {
  for (const CommitPolicy commit : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(std::string(CommitPolicyName(commit)));
    DeviceRig rig(*device_,
                  {.model = {.recipe = "fp8_per_channel"}, .commit = commit, .on_host = [](const std::string& name) {
                     return name.find("layers.0.input") != name.npos;
                   }});
    const testing::Weights weights = rig.Version(1);
    const testing::ServedBytes published = rig.Expected(weights);
    for (const std::uint64_t seed : {1U, 2U}) {
      const Noise noise{.sigma = 0.05F, .seed = seed};
      testing::ServedBytes noisy = published;
      for (auto& [name, bytes] : noisy) {
        if (name.find("norm") != std::string::npos) bytes = testing::SlowNoise(bytes, name, noise);
      }
      ReloadSource source = EagerSource(weights);
      source.noise = noise;
      const ReloadReport report = rig.receiver->ReloadWeights(std::move(source));
      EXPECT_THAT(Differences(rig.Served(), noisy), IsEmpty());
      EXPECT_EQ(report.served_digest, rig.receiver->captured().ServedDigest());
      testing::ServedBytes clean;
      const CapturedBuffers buffers = rig.receiver->clean();
      for (const CapturedBuffer& buffer : buffers.buffers()) clean[buffer.name] = buffers.Read(buffer);
      EXPECT_THAT(Differences(clean, published), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace layercast
