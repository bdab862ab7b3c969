#include "cli/doctor/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/doctor/machine_tree.h"

namespace layercast::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Machine, IsReadFromATreeOfAHost) {
  const testing::MachineTree tree;
  const Machine machine = ReadMachine(tree.root());
  EXPECT_EQ(machine.cpu, "Intel(R) Xeon(R) Platinum 8480+");
  EXPECT_THAT(machine.cpus, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(machine.cores, std::nullopt);
  EXPECT_EQ(machine.memory, std::uint64_t{131841024} * 1024);
  EXPECT_EQ(machine.available, std::uint64_t{104857600} * 1024);
  EXPECT_EQ(machine.memory_limit, std::nullopt);
  EXPECT_EQ(machine.locked, kUnlimited);
  EXPECT_EQ(machine.open_files, 1048576U);
  EXPECT_EQ(machine.shm, machine.memory / 2);  // what a tmpfs has that names no size
  EXPECT_EQ(machine.huge_pages, "madvise");
  EXPECT_EQ(machine.shared_huge_pages, "advise");
  EXPECT_EQ(machine.reserved_huge_pages, 16U);
  ASSERT_EQ(machine.nodes.size(), 1U);
  EXPECT_EQ(machine.iommu, Iommu::kOff);
  EXPECT_THAT(machine.rdma, ElementsAre("mlx5_0"));
  EXPECT_EQ(machine.gpus, 0U);
}

TEST(Machine, IsReadFromATreeOfAContainer) {
  const testing::MachineTree tree;
  tree.BecomeContainer();
  tree.Write("proc/driver/nvidia/gpus/0000:1a:00.0/information", "Model: \n");
  const Machine machine = ReadMachine(tree.root());
  EXPECT_EQ(machine.cores, 1.5);
  EXPECT_EQ(machine.memory_limit, std::uint64_t{8} << 30);
  EXPECT_EQ(machine.locked, 65536U);
  EXPECT_EQ(machine.open_files, 1024U);
  EXPECT_EQ(machine.shm, std::uint64_t{64} << 20);
  EXPECT_EQ(machine.huge_pages, "never");
  EXPECT_EQ(machine.shared_huge_pages, "never");
  EXPECT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(NodesOf(machine).size(), 2U);
  EXPECT_EQ(machine.iommu, Iommu::kTranslates);
  EXPECT_EQ(machine.gpus, 1U);
}

TEST(Machine, AnIommuThatHandsAddressesThroughTranslatesNothing) {
  const testing::MachineTree tree;
  tree.Iommu("identity");
  EXPECT_EQ(ReadMachine(tree.root()).iommu, Iommu::kPassesThrough);
}

TEST(Machine, OfSeveralMountsAtTheShmFolderTheLastOneCounts) {
  const testing::MachineTree tree;
  tree.Write("proc/self/mountinfo",
             "25 20 0:23 / /dev/shm rw - tmpfs shm rw,size=64m\n30 20 0:24 / /dev/shm rw - tmpfs tmpfs rw,size=8g\n"
             "31 20 0:25 / /run rw - tmpfs tmpfs rw,size=1k\n");
  EXPECT_EQ(ReadMachine(tree.root()).shm, std::uint64_t{8} << 30);
}

TEST(Machine, ANodeOnWhichTheProcessMayNotRunIsNoneOfItsOwn) {
  const testing::MachineTree tree;
  tree.Node(1, "8-15");
  const Machine machine = ReadMachine(tree.root());
  EXPECT_EQ(machine.nodes.size(), 2U);
  EXPECT_EQ(NodesOf(machine).size(), 1U);
}

TEST(Machine, ATreeWithoutAnythingIsNoError) {
  const TempFolder empty;
  const Machine machine = ReadMachine(empty.path());
  EXPECT_EQ(machine.locked, std::nullopt);
  EXPECT_EQ(machine.shm, std::nullopt);
  EXPECT_THAT(machine.cpus, IsEmpty());
}

TEST(Machine, ThisOneHasProcessorsAndMemory) {
  const Machine machine = ReadMachine();
  EXPECT_FALSE(machine.cpus.empty());
  EXPECT_GT(machine.memory, 0U);
  EXPECT_TRUE(machine.open_files.has_value());
}

TEST(Machine, AListOfProcessorsIsParsedAndNoListIsNone) {
  EXPECT_THAT(ParseCpuList("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(ParseCpuList("5"), ElementsAre(5));
  for (const char* none : {"", "x", "1-x", "0-99999999999"}) EXPECT_THAT(ParseCpuList(none), IsEmpty()) << none;
}

}  // namespace
}  // namespace layercast::cli
