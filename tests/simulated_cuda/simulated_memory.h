// Memory that the simulated device knows: of which kind, and how far it reaches.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <optional>

namespace simulated_cuda {

struct KnownRange {
  const std::byte* base = nullptr;
  std::size_t size = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
};

// Thread-safe, all of them.
void Know(const KnownRange& range);
void Forget(const void* base);
std::optional<KnownRange> Find(const void* address);

// Whether [address, address + bytes) is one thing: within one known range, or in no known one.
bool IsInOneRange(const void* address, std::size_t bytes);

// Memory of a device that can be handed to other processes, as a file.
struct SharedMemory {
  int file = -1;
  std::byte* base = nullptr;
  std::size_t size = 0;
};
// Without a base if there is no memory for it.
SharedMemory MakeShared(std::size_t bytes);
SharedMemory MapShared(int file, std::size_t bytes);
void UnmapShared(const SharedMemory& memory);
// An allocation's size; 0 if the file is none of this device's.
std::size_t SizeOfShared(int file);

// A file of this process as bytes that another one can open it by, for as long as it is open here.
struct FileOfProcess {
  long process;
  int fd;
  unsigned long inode;
};
FileOfProcess NameFile(int file);
int OpenFile(const FileOfProcess& named);  // -1: there is no such file any more

// What lies in memory that nobody has written yet, or that was given back.
inline constexpr int kJunk = 0xCB;

// How much a device has; it is not what it takes of the host's.
inline constexpr std::size_t kDeviceBytes = std::size_t{8} << 30;
// Of it, what virtual memory management has handed out.
std::size_t BytesOfDriver();

}  // namespace simulated_cuda
