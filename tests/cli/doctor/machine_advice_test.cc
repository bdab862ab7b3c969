// Each sentence about a machine: what brings it up, and that it is not there otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cli/doctor/advice.h"
#include "tests/cli/doctor/machine_tree.h"

namespace layercast::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MachineTree;

std::vector<std::string> NamesOf(const std::vector<Advice>& advice) {
  std::vector<std::string> names;
  for (const Advice& each : advice) names.push_back(each.name);
  return names;
}

struct Case {
  std::string name;
  std::function<void(const MachineTree&)> trigger;
  std::string says;      // part of the sentence
  std::string mends_it;  // part of the command
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"locked_memory", [](const MachineTree& tree) { tree.Limits("65536", "1048576"); }, "may lock 64 KiB",
       "ulimit -l unlimited"},
      {"open_files", [](const MachineTree& tree) { tree.Limits("unlimited", "1024"); }, "1024 open files",
       "LimitNOFILE=65536"},
      {"dev_shm", [](const MachineTree& tree) { tree.Shm("rw,size=65536k"); }, "/dev/shm has 64 MiB", "--shm-size=8g"},
      {"huge_pages",
       [](const MachineTree& tree) {
         tree.Write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
       },
       "no huge pages:", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"},
      {"shared_huge_pages",
       [](const MachineTree& tree) {
         tree.Write("sys/kernel/mm/transparent_hugepage/shmem_enabled",
                    "always within_size advise never [deny] force\n");
       },
       "for shared memory", "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"},
      {"cores",
       [](const MachineTree& tree) {
         tree.Write("sys/fs/cgroup/user.slice/session-3.scope/cpu.max", "150000 100000\n");
       },
       "1.5 cores of the 8", "docker update --cpus 8"},
      {"numa",
       [](const MachineTree& tree) {
         tree.Node(0, "0-3");
         tree.Node(1, "4-7");
       },
       "2 NUMA nodes", "numactl --cpunodebind=0 --membind=0"},
      {"iommu", [](const MachineTree& tree) { tree.Iommu("DMA"); }, "translates the addresses", "iommu=pt"}};
  return cases;
}

TEST(MachineAdvice, AMachineThatHasWhatASyncWantsIsToldNothing) {
  EXPECT_THAT(NamesOf(AdviceOn(ReadMachine(MachineTree().root()), "AVX3")), IsEmpty());
}

TEST(MachineAdvice, EachSettingBringsUpItsOwnSentenceAndNoOther) {
  for (const Case& each : Cases()) {
    const MachineTree tree;
    each.trigger(tree);
    const std::vector<Advice> advice = AdviceOn(ReadMachine(tree.root()), "AVX3");
    ASSERT_THAT(NamesOf(advice), ElementsAre(each.name));
    EXPECT_THAT(advice.front().text, HasSubstr(each.says));
    EXPECT_THAT(advice.front().command, HasSubstr(each.mends_it));
    EXPECT_FALSE(advice.front().fails) << each.name;
  }
}

TEST(MachineAdvice, AContainerAsDockerMakesItIsToldAllOfThem) {
  const MachineTree tree;
  tree.BecomeContainer();
  EXPECT_THAT(NamesOf(AdviceOn(ReadMachine(tree.root()), "AVX3")),
              ElementsAre("locked_memory", "open_files", "dev_shm", "huge_pages", "shared_huge_pages", "cores", "numa",
                          "iommu"));
}

TEST(MachineAdvice, WithoutDevicesThatReadMemoryNeitherItsLimitNorTheIommuMatters) {
  const MachineTree tree;
  tree.Limits("65536", "1048576");
  tree.Iommu("DMA");
  tree.Remove("sys/class/infiniband");
  EXPECT_THAT(NamesOf(AdviceOn(ReadMachine(tree.root()), "AVX3")), IsEmpty());
  tree.Write("proc/driver/nvidia/gpus/0000:1a:00.0/information", "");
  EXPECT_THAT(NamesOf(AdviceOn(ReadMachine(tree.root()), "AVX3")), ElementsAre("iommu"));
}

TEST(MachineAdvice, AMissingShmFolderIsToldAsOne) {
  const MachineTree tree;
  tree.Write("proc/self/mountinfo", "");
  const std::vector<Advice> advice = AdviceOn(ReadMachine(tree.root()), "AVX3");
  ASSERT_THAT(NamesOf(advice), ElementsAre("dev_shm"));
  EXPECT_THAT(advice.front().text, HasSubstr("There is no /dev/shm"));
}

TEST(MachineAdvice, AProcessThatIsKeptOnOneNodeIsNotToldToBe) {
  const MachineTree tree;
  tree.Node(0, "0-7");
  tree.Node(1, "8-15");
  EXPECT_THAT(NamesOf(AdviceOn(ReadMachine(tree.root()), "AVX3")), IsEmpty());
}

TEST(MachineAdvice, NarrowVectorsAreTold) {
  const MachineTree tree;
  for (const char* narrow : {"SSE2", "SSSE3", "SSE4", "SCALAR", "EMU128"}) {
    const std::vector<Advice> advice = AdviceOn(ReadMachine(tree.root()), narrow);
    ASSERT_THAT(NamesOf(advice), ElementsAre("instruction_set"));
    EXPECT_THAT(advice.front().text, HasSubstr(narrow));
    EXPECT_THAT(advice.front().command, HasSubstr("host"));
  }
  for (const char* wide : {"AVX2", "AVX3", "AVX3_DL", "AVX3_ZEN4", "NEON", "SVE2_128"}) {
    EXPECT_THAT(NamesOf(AdviceOn(ReadMachine(tree.root()), wide)), IsEmpty()) << wide;
  }
}

}  // namespace
}  // namespace layercast::cli
