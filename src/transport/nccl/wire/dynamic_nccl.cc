#include "src/transport/nccl/wire/dynamic_nccl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "layercast/error.h"

namespace layercast::nccl_channel {
namespace {

void* Open(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) throw Error(ErrorCode::kUnsupported, "NCCL cannot be loaded: " + std::string(::dlerror()));
  return library;
}

class DynamicNccl final : public NcclLibrary {
 public:
  explicit DynamicNccl(const std::string& path) : path_(path), library_(Open(path)) {
    const ncclResult_t result = get_version_(&version_);
    if (result != ncclSuccess) {
      throw Error(ErrorCode::kUnsupported,
                  "NCCL '" + path + "' does not say its version: " + get_error_string_(result));
    }
    if (version_ < kOldestNccl) {
      throw Error(ErrorCode::kUnsupported, "NCCL '" + path + "': expected version " + VersionText(kOldestNccl) +
                                               " or newer, got " + VersionText(version_));
    }
  }

  int version() const override { return version_; }
  ncclResult_t GetUniqueId(ncclUniqueId* id) override { return get_unique_id_(id); }
  ncclResult_t CommInitRankConfig(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank,
                                  ncclConfig_t* config) override {
    return comm_init_rank_config_(comm, ranks, id, rank, config);
  }
  ncclResult_t CommGetAsyncError(ncclComm_t comm, ncclResult_t* error) override {
    return comm_get_async_error_(comm, error);
  }
  ncclResult_t CommAbort(ncclComm_t comm) override { return comm_abort_(comm); }
  ncclResult_t GroupStart() override { return group_start_(); }
  ncclResult_t GroupEnd() override { return group_end_(); }
  ncclResult_t Send(const void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) override {
    return send_(bytes, count, type, peer, comm, stream);
  }
  ncclResult_t Recv(void* bytes, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    cudaStream_t stream) override {
    return recv_(bytes, count, type, peer, comm, stream);
  }
  ncclResult_t Broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) override {
    return broadcast_(from, to, count, type, root, comm, stream);
  }
  const char* GetErrorString(ncclResult_t result) override { return get_error_string_(result); }

 private:
  template <typename Function>
  Function* Find(const char* name) const {
    void* const found = ::dlsym(library_, name);
    if (found == nullptr) throw Error(ErrorCode::kUnsupported, "NCCL '" + path_ + "' has no " + name);
    return reinterpret_cast<Function*>(found);
  }

  const std::string path_;
  void* const library_;
  int version_ = 0;
  decltype(&ncclGetErrorString) get_error_string_ = Find<decltype(ncclGetErrorString)>("ncclGetErrorString");
  decltype(&ncclGetVersion) get_version_ = Find<decltype(ncclGetVersion)>("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id_ = Find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) comm_init_rank_config_ =
      Find<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(&ncclCommGetAsyncError) comm_get_async_error_ =
      Find<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(&ncclCommAbort) comm_abort_ = Find<decltype(ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclGroupStart) group_start_ = Find<decltype(ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end_ = Find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  decltype(&ncclSend) send_ = Find<decltype(ncclSend)>("ncclSend");
  decltype(&ncclRecv) recv_ = Find<decltype(ncclRecv)>("ncclRecv");
  decltype(&ncclBroadcast) broadcast_ = Find<decltype(ncclBroadcast)>("ncclBroadcast");
};

}  // namespace

std::string NcclPath() {
  const char* const path = std::getenv("LAYERCAST_NCCL_LIBRARY");
  return path != nullptr && *path != '\0' ? path : "libnccl.so.2";
}

std::unique_ptr<NcclLibrary> LoadNccl(const std::string& path) { return std::make_unique<DynamicNccl>(path); }

std::string VersionText(int version) {
  // NCCL_VERSION combines the numbers in this way; before 2.9 it had another factor.
  const int base = version < 10'000 ? 1'000 : 10'000;
  return std::to_string(version / base) + "." + std::to_string(version % base / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace layercast::nccl_channel
