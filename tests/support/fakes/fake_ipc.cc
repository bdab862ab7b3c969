#include "tests/support/fakes/fake_ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/transport/shm/memfd.h"

namespace layercast::test {
namespace {

using cuda_ipc_channel::IpcEvent;
using cuda_ipc_channel::IpcHandle;
using cuda_ipc_channel::MappedSegment;
using cuda_ipc_channel::OwnSegment;
using cuda_ipc_channel::SegmentKey;
using shm_channel::Mapping;
using shm_channel::Memfd;

// What a handle contains: a file of another process, which can be opened by it as long as that process has it open.
struct FileOfProcess {
  std::int64_t process = 0;
  std::int64_t fd = 0;
  std::uint64_t inode = 0;
};

IpcHandle HandleOf(const Memfd& file) {
  const FileOfProcess named{::getpid(), file.fd.get(), shm_channel::IdentityOf(file.fd).inode};
  IpcHandle handle{};
  std::memcpy(handle.data(), &named, sizeof(named));
  return handle;
}

UniqueFd OpenHandle(const IpcHandle& handle, bool strict) {
  FileOfProcess named;
  std::memcpy(&named, handle.data(), sizeof(named));
  if (strict && named.process == ::getpid()) throw Error(ErrorCode::kUnavailable, "invalid device context");
  const std::string path = "/proc/" + std::to_string(named.process) + "/fd/" + std::to_string(named.fd);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd || shm_channel::IdentityOf(fd).inode != named.inode) {
    throw Error(ErrorCode::kUnavailable, "invalid resource handle");
  }
  return fd;
}

// Fails as CUDA does, which says nothing more about a handle that it does not know.
Mapping Import(const UniqueFd& descriptor) {
  try {
    return shm_channel::MapReadOnly(descriptor);
  } catch (const Error&) {
    throw Error(ErrorCode::kUnsupported, "cuMemImportFromShareableHandle: invalid argument");
  }
}

// Memory that the device knows as its own as long as this object lives.
class KnownRange {
 public:
  KnownRange(std::shared_ptr<FakeChannelDevice> device, const std::byte* base, std::size_t size)
      : device_(std::move(device)), base_(base) {
    device_->known().Know(base, size);
  }
  ~KnownRange() { device_->known().Forget(base_); }
  KnownRange(const KnownRange&) = delete;
  KnownRange& operator=(const KnownRange&) = delete;

 private:
  const std::shared_ptr<FakeChannelDevice> device_;  // second owner: the driver
  const std::byte* const base_;
};

class FakeSegment final : public OwnSegment {
 public:
  FakeSegment(std::shared_ptr<FakeChannelDevice> device, std::atomic<std::size_t>& bytes_left, std::size_t size,
              bool vmm)
      : bytes_left_(bytes_left),
        vmm_(vmm),
        file_(shm_channel::MakeMemfd("fake-device", size)),
        known_(std::move(device), file_.memory.base(), size) {
    bytes_left_ -= size;
  }
  ~FakeSegment() override { bytes_left_ += size(); }
  std::byte* base() const override { return file_.memory.base(); }
  std::size_t size() const override { return file_.memory.size(); }
  SegmentKey Export() const override {
    if (!vmm_) return {{}, HandleOf(file_)};
    return {UniqueFd(::fcntl(file_.fd.get(), F_DUPFD_CLOEXEC, 0)), {}};
  }
  bool kept_by_mappings() const override { return vmm_; }

 private:
  std::atomic<std::size_t>& bytes_left_;
  const bool vmm_;
  const Memfd file_;
  const KnownRange known_;
};

class FakeMapping final : public MappedSegment {
 public:
  FakeMapping(std::shared_ptr<FakeChannelDevice> device, std::atomic<int>& live, Mapping memory)
      : live_(live), memory_(std::move(memory)), known_(std::move(device), memory_.base(), memory_.size()) {
    ++live_;
  }
  ~FakeMapping() override { --live_; }
  const std::byte* base() const override { return memory_.base(); }
  std::size_t size() const override { return memory_.size(); }

 private:
  std::atomic<int>& live_;
  const Mapping memory_;
  const KnownRange known_;
};

struct Counters {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> reached;
};

class FakeEvent final : public IpcEvent {
 public:
  explicit FakeEvent(std::atomic<int>& asked) : asked_(asked), file_(shm_channel::MakeMemfd("fake-event", kBytes)) {
    counters_ = reinterpret_cast<Counters*>(file_.memory.base());
  }
  FakeEvent(std::atomic<int>& asked, const UniqueFd& fd) : asked_(asked) {
    opened_ = shm_channel::MapReadOnly(fd);
    counters_ = reinterpret_cast<Counters*>(opened_.base());
  }
  IpcHandle handle() const override { return HandleOf(file_); }
  void Record(CopyStream& stream) override {
    const std::uint64_t number = ++counters_->recorded;
    FakeStream::Of(stream.handle()).Queue([counters = counters_, number] {
      counters->reached = number;
      return true;
    });
  }
  bool Reached() override {
    ++asked_;
    return counters_->reached >= counters_->recorded;
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  std::atomic<int>& asked_;
  Memfd file_;
  Mapping opened_;
  Counters* counters_ = nullptr;
};

}  // namespace

std::unique_ptr<OwnSegment> FakeIpc::MakeSegment(std::size_t bytes) {
  if (!has_vmm && !has_legacy) {
    throw Error(ErrorCode::kUnsupported, "device memory cannot be shared here: operation not supported");
  }
  if (bytes > bytes_left) throw Error(ErrorCode::kResourceExhausted, "cuMemCreate: out of memory");
  return std::make_unique<FakeSegment>(device_, bytes_left, bytes, has_vmm);
}

std::unique_ptr<const MappedSegment> FakeIpc::Map(SegmentKey key, std::size_t bytes) {
  if (!key.descriptor) key.descriptor = OpenHandle(key.handle, strict);
  if (!opens_segments) throw Error(ErrorCode::kUnsupported, "cuMemImportFromShareableHandle: invalid device ordinal");
  Mapping memory = Import(key.descriptor);
  if (memory.size() != bytes) throw Error(ErrorCode::kCorrupt, "cuMemMap: invalid argument");
  ++mapped;
  return std::make_unique<FakeMapping>(device_, live_mappings, std::move(memory));
}

std::unique_ptr<IpcEvent> FakeIpc::MakeEvent() {
  if (!has_events) throw Error(ErrorCode::kUnsupported, "cudaIpcGetEventHandle: operation not supported");
  return std::make_unique<FakeEvent>(asked);
}

std::unique_ptr<IpcEvent> FakeIpc::OpenEvent(const IpcHandle& handle) {
  if (!opens_events) throw Error(ErrorCode::kUnavailable, "cudaIpcOpenEventHandle: invalid device context");
  return std::make_unique<FakeEvent>(asked, OpenHandle(handle, strict));
}

}  // namespace layercast::test
