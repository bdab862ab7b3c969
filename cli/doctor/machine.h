// What this machine, container and process have that decides how fast a sync can be, as /proc and /sys tell it. Used by
// `layercast doctor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace layercast::cli {

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// What the hardware that translates addresses of devices does with them.
enum class Iommu : std::uint8_t { kOff, kPassesThrough, kTranslates };

struct NumaNode {
  int number = 0;
  std::vector<int> cpus;
};

// Value. What could not be read is as these say.
struct Machine {
  std::string cpu;                              // its model
  std::vector<int> cpus;                        // on which this process may run
  std::optional<double> cores;                  // of which its control group gives it so much; nothing: no bound
  std::uint64_t memory = 0;                     // bytes, of the machine
  std::uint64_t available = 0;                  // bytes of it
  std::optional<std::uint64_t> memory_limit{};  // bytes, of the control group; nothing: no bound
  std::optional<std::uint64_t> locked{};        // bytes of memory that may be locked, at most
  std::optional<std::uint64_t> open_files{};    // at most
  std::optional<std::uint64_t> shm{};  // bytes, the size of /dev/shm; nothing: there is none, or no size is told
  std::string huge_pages{};            // "madvise": for which memory the kernel takes them unasked
  std::string shared_huge_pages{};     // the same for shared memory
  std::uint64_t reserved_huge_pages = 0;
  std::vector<NumaNode> nodes{};  // those that have processors
  Iommu iommu = Iommu::kOff;
  std::vector<std::string> rdma{};  // devices: "mlx5_0"
  std::size_t gpus = 0;
};

// Reads below `root`, which tests put together themselves.
Machine ReadMachine(const std::filesystem::path& root = "/");
// The nodes on which the process may run.
std::vector<NumaNode> NodesOf(const Machine& machine);
// Parses "0-3,8" as /sys has lists of processors. What is no such list is none.
std::vector<int> ParseCpuList(const std::string& text);

}  // namespace layercast::cli
