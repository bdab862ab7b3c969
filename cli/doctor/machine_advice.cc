// What a machine's own settings cost a sync.
#include <algorithm>
#include <cstdio>
#include <string>

#include "cli/doctor/advice.h"
#include "cli/doctor/amounts.h"
#include "src/tensor/kernels/instruction_set.h"

namespace layercast::cli {
namespace {

constexpr std::uint64_t kEnoughLocked = std::uint64_t{1} << 30;  // some registered buffers of a rank
constexpr std::uint64_t kEnoughShm = std::uint64_t{1} << 30;
constexpr std::uint64_t kEnoughFiles = 4096;

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void AdviseLockedMemory(const Machine& machine, std::vector<Advice>& advice) {
  if (machine.rdma.empty() || machine.locked.value_or(kUnlimited) >= kEnoughLocked) return;
  advice.push_back(
      {.name = "locked_memory",
       .text = "This process may lock " + BytesText(*machine.locked) + " of memory, and " + Listed(machine.rdma) +
               " reads only memory that is locked: ucx falls back to messages, which cost a copy and a core.",
       .command = "ulimit -l unlimited    # systemd: LimitMEMLOCK=infinity; docker run --ulimit "
                  "memlock=-1 --cap-add IPC_LOCK"});
}

void AdviseOpenFiles(const Machine& machine, std::vector<Advice>& advice) {
  if (machine.open_files.value_or(kUnlimited) >= kEnoughFiles) return;
  advice.push_back({.name = "open_files",
                    .text = "This process may have " + std::to_string(*machine.open_files) +
                            " open files, and a publisher needs several for each rank that takes from it: it turns "
                            "away ranks when they have run out.",
                    .command = "ulimit -Hn 65536    # systemd: LimitNOFILE=65536; docker run --ulimit "
                               "nofile=65536:65536"});
}

void AdviseShm(const Machine& machine, std::vector<Advice>& advice) {
  if (machine.shm.value_or(0) >= kEnoughShm) return;
  const std::string has = machine.shm ? "/dev/shm has " + BytesText(*machine.shm) : "There is no /dev/shm";
  advice.push_back({.name = "dev_shm",
                    .text = has +
                            ", in which the shared memory of UCX and NCCL lies: between processes of this machine they "
                            "fail or go over sockets. (The channel shm is not touched: its memory has no name.)",
                    .command = "mount -o remount,size=8g /dev/shm    # docker run --shm-size=8g; Kubernetes: an "
                               "emptyDir {medium: Memory} at /dev/shm"});
}

void AdviseHugePages(const Machine& machine, std::vector<Advice>& advice) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  if (machine.huge_pages == "never") {
    advice.push_back({.name = "huge_pages",
                      .text = "The kernel gives no huge pages: memory that is touched for the first time costs several "
                              "times as much, for each buffer and each snapshot.",
                      .command = "echo madvise > " + folder + "enabled"});
  }
  if (machine.shared_huge_pages == "never" || machine.shared_huge_pages == "deny") {
    advice.push_back({.name = "shared_huge_pages",
                      .text = "The kernel gives no huge pages for shared memory: a publisher's first snapshots, and "
                              "the first look of each engine at them, take longer. Later ones reuse the memory.",
                      .command = "echo advise > " + folder + "shmem_enabled"});
  }
}

void AdviseCores(const Machine& machine, std::vector<Advice>& advice) {
  if (!machine.cores || *machine.cores >= static_cast<double>(machine.cpus.size())) return;
  advice.push_back({.name = "cores",
                    .text = "The control group gives this process " + NumberText(*machine.cores) + " cores of the " +
                            std::to_string(machine.cpus.size()) +
                            " that it sees: threads that copy, digest and quantize are stopped when they have used "
                            "that up.",
                    .command = "docker update --cpus " + std::to_string(machine.cpus.size()) +
                               " CONTAINER    # Kubernetes: resources.limits.cpu"});
}

void AdviseNuma(const Machine& machine, std::vector<Advice>& advice) {
  const std::vector<NumaNode> nodes = NodesOf(machine);
  if (nodes.size() < 2) return;
  const std::string first = std::to_string(nodes.front().number);
  advice.push_back(
      {.name = "numa",
       .text = "This process may run on " + std::to_string(nodes.size()) +
               " NUMA nodes: bytes that one node's cores copy into the other's memory go at about half "
               "the rate. Keep each engine and its publisher on one, that of its GPU and its network card.",
       .command = "numactl --cpunodebind=" + first + " --membind=" + first + " layercast serve ..."});
}

void AdviseIommu(const Machine& machine, std::vector<Advice>& advice) {
  if (machine.iommu != Iommu::kTranslates || (machine.rdma.empty() && machine.gpus == 0)) return;
  advice.push_back({.name = "iommu",
                    .text = "The IOMMU translates the addresses of devices: reads between GPUs and network cards go "
                            "through the processor, where they are slow, or do not work at all.",
                    .command = "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX iommu=pt\"' >> /etc/default/grub && "
                               "update-grub && reboot"});
}

void AdviseInstructions(const std::string& instruction_set, std::vector<Advice>& advice) {
  if (IsWide(instruction_set)) return;
  advice.push_back({.name = "instruction_set",
                    .text = "Kernels are run for " + instruction_set +
                            ", the oldest vectors: quantizing takes several times as long as with AVX2. A virtual "
                            "machine shows what its host has if it is told to.",
                    .command = "qemu-system-x86_64 -cpu host ...    # libvirt: <cpu mode='host-passthrough'/>"});
}

}  // namespace

std::vector<Advice> AdviceOn(const Machine& machine, const std::string& instruction_set) {
  std::vector<Advice> advice;
  AdviseLockedMemory(machine, advice);
  AdviseOpenFiles(machine, advice);
  AdviseShm(machine, advice);
  AdviseHugePages(machine, advice);
  AdviseCores(machine, advice);
  AdviseNuma(machine, advice);
  AdviseIommu(machine, advice);
  AdviseInstructions(instruction_set, advice);
  return advice;
}

}  // namespace layercast::cli
