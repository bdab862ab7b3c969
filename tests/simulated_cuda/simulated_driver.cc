// The CUDA driver's functions that Layercast finds at run time: contexts, and virtual memory management.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tests/simulated_cuda/simulated_context.h"
#include "tests/simulated_cuda/simulated_memory.h"

using namespace simulated_cuda;

namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

// Allocations by their files' numbers, which are their handles, and what is mapped. Memory is freed when neither is
// left.
struct Allocations {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, std::size_t> sizes;  // guarded by mutex
  struct Mapped {
    CUmemGenericAllocationHandle handle;  // 0: it was released
    std::size_t size;
  };
  std::map<CUdeviceptr, Mapped> mapped;  // guarded by mutex
};

Allocations& All() {
  static auto& all = *new Allocations;
  return all;
}

// Of an allocation; 0 if there is none of that handle.
std::size_t SizeOf(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(All().mutex);
  const auto found = All().sizes.find(handle);
  return found != All().sizes.end() ? found->second : 0;
}

CUmemGenericAllocationHandle Keep(int file, std::size_t size) {
  const std::lock_guard lock(All().mutex);
  All().sizes[static_cast<CUmemGenericAllocationHandle>(file)] = size;
  return static_cast<CUmemGenericAllocationHandle>(file);
}

}  // namespace

std::size_t simulated_cuda::BytesOfDriver() {
  const std::lock_guard lock(All().mutex);
  std::size_t bytes = 0;
  for (const auto& [handle, size] : All().sizes) bytes += size;
  for (const auto& [address, mapped] : All().mapped) bytes += mapped.handle == 0 ? mapped.size : 0;
  return bytes;
}

namespace {

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult CreateContext(CUcontext* context, unsigned /*flags*/, CUdevice device) {
  *context = new Context(device);
  Push(*context);
  return CUDA_SUCCESS;
}
CUresult DestroyContext(CUcontext context) {
  if (Current() == context) Pop();
  delete context;
  return CUDA_SUCCESS;
}
CUresult RetainPrimary(CUcontext* context, CUdevice device) {
  *context = &OpenPrimary(device);
  return CUDA_SUCCESS;
}
CUresult PrimaryState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = IsOpen(device) ? 1 : 0;
  return CUDA_SUCCESS;
}
CUresult GetCurrent(CUcontext* context) {
  *context = Current();
  return CUDA_SUCCESS;
}
CUresult PushCurrent(CUcontext context) {
  Push(context);
  return CUDA_SUCCESS;
}
CUresult PopCurrent(CUcontext* context) {
  *context = Pop();
  return *context != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/, cudaDriverEntryPointQueryResult* status) {
  static const std::map<std::string, void*> functions = {
      {"cuCtxCreate", reinterpret_cast<void*>(&CreateContext)},
      {"cuCtxDestroy", reinterpret_cast<void*>(&DestroyContext)},
      {"cuCtxGetCurrent", reinterpret_cast<void*>(&GetCurrent)},
      {"cuCtxPushCurrent", reinterpret_cast<void*>(&PushCurrent)},
      {"cuCtxPopCurrent", reinterpret_cast<void*>(&PopCurrent)},
      {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&RetainPrimary)},
      {"cuDevicePrimaryCtxGetState", reinterpret_cast<void*>(&PrimaryState)},
  };
  const auto found = functions.find(name);
  *function = found != functions.end() ? found->second : nullptr;
  if (status != nullptr) {
    *status = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

CUresult cuGetErrorString(CUresult error, const char** words) {
  *words = error == CUDA_ERROR_INVALID_VALUE ? "invalid argument" : "an error of the simulated CUDA";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute /*attribute*/, CUdevice device) {
  *value = 1;  // whatever Layercast asks about is there
  return IsDevice(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* /*properties*/,
                                       CUmemAllocationGranularity_flags /*which*/) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* /*properties*/,
                     unsigned long long /*flags*/) {
  if (size == 0 || size % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > kDeviceBytes - BytesOfDriver()) return CUDA_ERROR_OUT_OF_MEMORY;
  const SharedMemory memory = MakeShared(size);
  if (memory.base == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ::munmap(memory.base, memory.size);
  *handle = Keep(memory.file, size);
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(All().mutex);
  if (All().sizes.erase(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  for (auto& [address, mapped] : All().mapped) {
    if (mapped.handle == handle) mapped.handle = 0;
  }
  ::close(static_cast<int>(handle));
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* descriptor, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType /*type*/, unsigned long long /*flags*/) {
  if (SizeOf(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(descriptor) = ::fcntl(static_cast<int>(handle), F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor,
                                        CUmemAllocationHandleType /*type*/) {
  const int file = static_cast<int>(reinterpret_cast<std::uintptr_t>(descriptor));
  const std::size_t size = SizeOfShared(file);
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = Keep(::fcntl(file, F_DUPFD_CLOEXEC, 0), size);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t size, std::size_t /*alignment*/, CUdeviceptr /*wish*/,
                             unsigned long long /*flags*/) {
  if (size == 0 || size % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const base = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<CUdeviceptr>(base);
  return base != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t size) {
  return ::munmap(Pointer(address), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long /*flags*/) {
  if (offset != 0 || SizeOf(handle) != size) return CUDA_ERROR_INVALID_VALUE;
  void* const mapped = ::mmap(Pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(All().mutex);
  All().mapped[address] = {handle, size};
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, std::size_t size, const CUmemAccessDesc* access, std::size_t count) {
  if (count != 1) return CUDA_ERROR_INVALID_VALUE;
  const bool writes = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (::mprotect(Pointer(address), size, writes ? PROT_READ | PROT_WRITE : PROT_READ) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Know({static_cast<std::byte*>(Pointer(address)), size, cudaMemoryTypeDevice, access->location.id});
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t size) {
  Forget(Pointer(address));
  {
    const std::lock_guard lock(All().mutex);
    const auto found = All().mapped.find(address);
    if (found == All().mapped.end() || found->second.size != size) return CUDA_ERROR_INVALID_VALUE;  // no part of one
    All().mapped.erase(found);
  }
  void* const unmapped =
      ::mmap(Pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return unmapped != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
