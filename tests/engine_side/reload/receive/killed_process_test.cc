// A process that is killed while it writes captured buffers, and the one that takes its memory over.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::IsEmpty;
using testing::RigOptions;
using testing::ServedBytes;

// An engine's memory and what its policy keeps, both of which outlive a process.
class SharedMemory final : public MemoryResource {
 public:
  SharedMemory()
      : base_(static_cast<std::byte*>(
            ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~SharedMemory() override { ::munmap(base_, kBytes); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* Allocate(std::size_t bytes) override {
    return base_ + std::exchange(used_, used_ + (bytes + 63) / 64 * 64);
  }
  void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
  void StartAnew() { used_ = 0; }

 private:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::byte* const base_;
  std::size_t used_ = 0;
};

class KilledProcess : public ::testing::TestWithParam<CommitPolicy> {
 protected:
  KilledProcess() {
    for (CapturedBuffer& buffer : table_) {
      buffer.address = weights_.Allocate(static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape)));
    }
  }

  std::unique_ptr<Receiver> Start() {
    kept_.StartAnew();
    ReceiverOptions options;
    options.threads = 1;
    options.commit = GetParam();
    options.staging_memory = &kept_;
    return std::make_unique<Receiver>(testing::RigModel(options_), ParallelConfig{},
                                      QuantizationConfig{options_.recipe}, CapturedBuffers::Adopt(table_), options);
  }

  // Serves version 1, and is then killed as it takes version 2, if it gets as far as the failpoint.
  bool DiesAt(const std::string& failpoint) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("LAYERCAST_FAILPOINTS", failpoint.c_str(), 1);
      try {
        const std::unique_ptr<Receiver> receiver = Start();
        receiver->ReloadWeights(EagerSource(testing::RigWeights(options_, 1)));
        receiver->ReloadWeights(EagerSource(testing::RigWeights(options_, 2)));
      } catch (const Error&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
    return WIFSIGNALED(status);
  }

  ServedBytes Served() const {
    const CapturedBuffers captured = CapturedBuffers::Adopt(table_);
    ServedBytes served;
    for (const CapturedBuffer& buffer : captured.buffers()) served[buffer.name] = captured.Read(buffer);
    return served;
  }

  const RigOptions options_{.recipe = "fp8_per_block"};
  testing::EngineMemory layout_{*testing::RigModel(options_), *MakeRecipe(options_.recipe)};
  std::vector<CapturedBuffer> table_ = layout_.table();
  SharedMemory weights_;
  SharedMemory kept_;
};

TEST_P(KilledProcess, IsFollowedByOneThatServesAWholeVersionOrIsTorn) {
  const ServedBytes old = testing::ServedSlowly(options_, testing::RigWeights(options_, 1));
  std::size_t killed = 0;
  for (; DiesAt("commit.copy=kill@" + std::to_string(killed)); ++killed) {
    SCOPED_TRACE("killed before captured buffer " + std::to_string(killed));
    const std::unique_ptr<Receiver> receiver = Start();
    const bool whole = receiver->RollBack();
    EXPECT_EQ(whole, GetParam() == CommitPolicy::kUndo || killed == 0);
    EXPECT_EQ(receiver->torn().has_value(), !whole);
    EXPECT_EQ(Differences(Served(), old).empty(), whole);
    receiver->ReloadWeights(EagerSource(testing::RigWeights(options_, 3)));
    EXPECT_FALSE(receiver->torn());
    ASSERT_THAT(Differences(Served(), testing::ServedSlowly(options_, testing::RigWeights(options_, 3))), IsEmpty());
  }
  EXPECT_EQ(killed, table_.size());
}

INSTANTIATE_TEST_SUITE_P(Policies, KilledProcess, ::testing::Values(CommitPolicy::kUndo, CommitPolicy::kInPlace),
                         [](const auto& policy) { return std::string(CommitPolicyName(policy.param)); });

}  // namespace
}  // namespace layercast
