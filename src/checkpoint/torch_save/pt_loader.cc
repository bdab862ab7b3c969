// `--load-format pt`: *.bin and *.pt files, as torch.save writes them: a zip file whose data.pkl says which piece of
// which record each tensor is. The records are mapped, and their checksums are verified when they are read.
#include "src/checkpoint/torch_save/pt_loader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/base/utf8.h"
#include "src/checkpoint/owned_tensor.h"
#include "src/checkpoint/torch_save/torch_state_dict.h"
#include "src/checkpoint/torch_save/zip_directory.h"

namespace layercast {
namespace {

// What torch.save before 1.6 writes first: a pickle of this number.
constexpr std::array<unsigned char, 15> kLegacyMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                                        0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
constexpr std::array<unsigned char, 4> kZipMagic = {'P', 'K', 3, 4};

template <std::size_t kSize>
bool BeginsWith(std::span<const std::byte> bytes, const std::array<unsigned char, kSize>& magic) {
  return bytes.size() >= kSize && std::memcmp(bytes.data(), magic.data(), kSize) == 0;
}

// Resource; immutable, except for the flags that say which records were checked. Any thread may read.
class PtFile final : public TensorFile {
 public:
  explicit PtFile(const std::filesystem::path& path)
      : TensorFile(path),
        subject_(Quote(path.native())),
        directory_(ReadDirectory()),
        archive_(FindArchive()),
        tensors_(ReadTensors()),
        checked_(std::make_unique<std::once_flag[]>(directory_.records.size())) {}

  std::size_t num_tensors() const override { return tensors_.size(); }
  const TensorSpec& spec(std::size_t index) const override { return tensors_.at(index).spec; }

  NamedTensor Read(std::size_t index) const override {
    const TorchTensor& tensor = tensors_.at(index);
    const ZipRecord& record = *directory_.Find(RecordOf(tensor.storage));
    const std::span<const std::byte> storage = BytesOf(record);
    Check(record, storage);
    if (tensor.IsContiguous()) {
      return {.name = tensor.spec.name,
              .tensor = {.dtype = tensor.spec.dtype,
                         .shape = tensor.spec.shape,
                         .data = storage.data() + tensor.begin,
                         .device = {}},
              .owner = nullptr};
    }
    OwnedTensor copy = MakeOwnedTensor(tensor.spec);
    CopyStrided(tensor, storage, copy.bytes);
    return std::move(copy.tensor);
  }

 private:
  ZipDirectory ReadDirectory() const {
    const std::span<const std::byte> bytes = mapping().bytes();
    if (BeginsWith(bytes, kLegacyMagic)) {
      throw Error(ErrorCode::kUnsupported,
                  subject_ +
                      " has the form that torch.save had before 1.6, which is not read: torch.load it, and "
                      "torch.save it again");
    }
    if (!BeginsWith(bytes, kZipMagic)) {
      throw Error(ErrorCode::kCorrupt,
                  subject_ + ": at byte 0: expected a zip file, as torch.save writes them, got " +
                      Quote({reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 4)}));
    }
    return ReadZipDirectory(bytes, subject_);
  }

  // All records lie under one name: "archive/data.pkl".
  std::string FindArchive() const {
    for (const ZipRecord& record : directory_.records) {
      const std::size_t slash = record.name.find('/');
      if (slash == std::string::npos) continue;
      const std::string_view rest = std::string_view(record.name).substr(slash + 1);
      if (rest == "data.pkl") return record.name.substr(0, slash + 1);
    }
    throw Error(ErrorCode::kCorrupt, subject_ + ": expected a record data.pkl, got none: no file of torch.save");
  }

  std::vector<TorchTensor> ReadTensors() const {
    if (directory_.Find(archive_ + "constants.pkl") != nullptr) {
      throw Error(ErrorCode::kUnsupported, subject_ +
                                               " is a TorchScript program, not a checkpoint: torch.save its "
                                               "state_dict()");
    }
    CheckByteOrder();
    const ZipRecord& record = *directory_.Find(archive_ + "data.pkl");
    CheckRecord(mapping().bytes(), directory_, record, subject_);
    const std::string subject = subject_ + ": data.pkl";
    const Pickle pickle = ReadPickle(BytesOf(record), TorchGlobals(), subject);
    const auto storage_bytes = [this](const std::string& key) -> std::optional<std::uint64_t> {
      const ZipRecord* const found = directory_.Find(RecordOf(key));
      if (found == nullptr) return std::nullopt;
      CheckStored(*found, subject_);
      return found->bytes;
    };
    return ReadStateDict(pickle, storage_bytes, subject);
  }

  void CheckByteOrder() const {
    const ZipRecord* const record = directory_.Find(archive_ + "byteorder");
    if (record == nullptr) return;  // older torch uses the machine's byte order, and no big-endian machine runs this
    CheckRecord(mapping().bytes(), directory_, *record, subject_);
    const std::span<const std::byte> bytes = BytesOf(*record);
    const std::string_view order(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (order != "little") {
      throw Error(ErrorCode::kUnsupported, subject_ + ": record byteorder: expected 'little', got " + Quote(order));
    }
  }

  std::string RecordOf(const std::string& storage) const { return archive_ + "data/" + storage; }

  std::span<const std::byte> BytesOf(const ZipRecord& record) const {
    return mapping().bytes().subspan(static_cast<std::size_t>(record.begin), static_cast<std::size_t>(record.bytes));
  }

  // Checks a record once, however many tensors are views of it.
  void Check(const ZipRecord& record, std::span<const std::byte> bytes) const {
    const auto index = static_cast<std::size_t>(&record - directory_.records.data());
    std::call_once(checked_[index], [&] {
      mapping().Populate(bytes);
      CheckRecord(mapping().bytes(), directory_, record, subject_);
    });
  }

  const std::string subject_;
  const ZipDirectory directory_;
  const std::string archive_;  // "archive/"
  const std::vector<TorchTensor> tensors_;
  const std::unique_ptr<std::once_flag[]> checked_;  // by record
};

// Files without weights that trainers leave beside the weights.
constexpr std::string_view kNoWeights[] = {"training_args.bin", "optimizer.bin", "optimizer.pt",
                                           "scheduler.pt",      "scaler.pt",     "rng_state.pth"};

class PtLoader final : public Loader {
 public:
  std::string_view index_name() const override { return "pytorch_model.bin.index.json"; }

  // Files with the first ending that occurs, since a folder may hold the same weights under several endings.
  std::vector<std::string> Choose(const std::vector<std::string>& names) const override {
    std::vector<std::string> chosen;
    for (const std::string_view ending : {".bin", ".pt", ".pth"}) {
      for (const std::string& name : names) {
        if (name.ends_with(ending) && std::ranges::find(kNoWeights, name) == std::end(kNoWeights))
          chosen.push_back(name);
      }
      if (!chosen.empty()) break;
    }
    return chosen;
  }

  std::shared_ptr<const TensorFile> Open(const std::filesystem::path& file) const override {
    return std::make_shared<const PtFile>(file);
  }
};

}  // namespace

std::unique_ptr<const Loader> MakePtLoader() { return std::make_unique<const PtLoader>(); }

}  // namespace layercast
