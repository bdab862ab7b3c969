// Trees of /proc and /sys as machines have them, for the tests of what `layercast doctor` reads.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace layercast::cli::testing {

// A host that has all that a sync may want: 8 cores on one node, an RDMA card, no bounds.
class MachineTree {
 public:
  MachineTree() {
    Write("proc/cpuinfo",
          "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\nflags\t\t: fpu "
          "avx2\n");
    Limits("unlimited", "1048576");
    Write("proc/self/status", "Name:\tlayercast\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0\n");
    Write("proc/meminfo",
          "MemTotal:       131841024 kB\nMemFree:        92160000 kB\nMemAvailable:   104857600 kB\n"
          "HugePages_Total:      16\nHugepagesize:       2048 kB\n");
    Write("proc/self/cgroup", "0::/user.slice/session-3.scope\n");
    Write("sys/fs/cgroup/user.slice/session-3.scope/cpu.max", "max 100000\n");
    Write("sys/fs/cgroup/user.slice/session-3.scope/memory.max", "max\n");
    Shm("rw,inode64");
    Write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    Write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
    Node(0, "0-7");
    Write("sys/devices/system/node/possible", "0\n");
    Write("sys/class/infiniband/mlx5_0/node_guid", "0000:0000:0000:0000\n");
  }

  void Write(const std::string& name, std::string_view text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  void Remove(const std::string& name) const { std::filesystem::remove_all(folder_ / name); }

  // What may be locked, and how many files may be open; the soft limits are lower.
  void Limits(const std::string& locked, const std::string& files) const {
    Write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max cpu time              unlimited            unlimited            seconds   \n"
          "Max open files            256                  " +
              files +
              "                 files     \n"
              "Max locked memory         4096                 " +
              locked + "                bytes     \n");
  }
  void Shm(const std::string& options) const {
    Write("proc/self/mountinfo",
          "20 1 0:18 / / rw,relatime - overlay overlay rw,size=1k\n"
          "25 20 0:23 / /dev/shm rw,nosuid,nodev,noexec,relatime - tmpfs shm " +
              options + "\n");
  }
  void Node(int number, const std::string& cpus) const {
    Write("sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus + "\n");
  }
  void Iommu(const std::string& type) const {
    Write("sys/class/iommu/dmar0/uevent", "");
    Write("sys/kernel/iommu_groups/0/type", type + "\n");
  }
  // A container as Docker makes it by default, on two cores of a host with two nodes.
  void BecomeContainer() const {
    Limits("65536", "1024");
    Shm("rw,size=65536k,inode64");
    Write("proc/self/cgroup", "0::/\n");
    Write("sys/fs/cgroup/cpu.max", "150000 100000\n");
    Write("sys/fs/cgroup/memory.max", "8589934592\n");
    Write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    Write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
    Node(0, "0-3");
    Node(1, "4-7");
    Iommu("DMA-FQ");
  }

  const std::filesystem::path& root() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

}  // namespace layercast::cli::testing
