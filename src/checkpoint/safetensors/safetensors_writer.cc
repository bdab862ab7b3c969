#include "src/checkpoint/safetensors/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/utf8.h"
#include "src/checkpoint/safetensors/safetensors_header.h"

namespace layercast {
namespace {

std::string Json(const std::string& text) { return nlohmann::json(text).dump(); }

// `{"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}`, as the reference implementation spells it.
std::string TensorJson(const TensorSpec& spec, std::uint64_t begin, std::uint64_t end) {
  return Json(spec.name) + R"(:{"dtype":")" + std::string(SafetensorsName(spec.dtype)) + R"(","shape":)" +
         nlohmann::json(spec.shape).dump() + R"(,"data_offsets":[)" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

std::string LittleEndian(std::uint64_t value) {
  std::string bytes(kSafetensorsPrefix, '\0');
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i)
    bytes[i] = static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  return bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> specs,
                                     const Metadata& metadata)
    : path_(std::move(path)), specs_(std::move(specs)) {
  std::ranges::sort(specs_, [](const TensorSpec& a, const TensorSpec& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  const std::string beginning = PlaceTensors(metadata);
  CreateTemporary();
  WriteAt(0, std::as_bytes(std::span(beginning)));
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

std::string SafetensorsWriter::PlaceTensors(const Metadata& metadata) {
  std::string header = "{";
  const auto add = [&](const std::string& member) { header += (header.size() == 1 ? "" : ",") + member; };
  for (const auto& [key, value] : metadata) {
    if (FindInvalidUtf8(key) || FindInvalidUtf8(value)) Fail("metadata " + Quote(key) + " is not UTF-8");
  }
  if (!metadata.empty()) add(Json(kSafetensorsMetadataKey) + ":" + nlohmann::json(metadata).dump());
  std::uint64_t end = 0;
  for (const TensorSpec& spec : specs_) {
    if (spec.name == kSafetensorsMetadataKey) Fail("a tensor cannot be called " + Quote(spec.name));
    if (FindInvalidUtf8(spec.name)) Fail("the name " + Quote(spec.name) + " is not UTF-8");
    const auto bytes = static_cast<std::uint64_t>(spec.num_bytes());
    if (!slots_.emplace(spec.name, Slot{.begin = end, .bytes = bytes}).second) {
      Fail("two tensors are called " + Quote(spec.name));
    }
    add(TensorJson(spec, end, end + bytes));
    end += bytes;
    if (end >> 62 != 0) Fail("with tensor " + Quote(spec.name) + " the data exceeds 2^62 bytes");
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kLargestSafetensorsHeader) {
    Fail("expected a header of at most " + std::to_string(kLargestSafetensorsHeader) + " bytes, got " +
         std::to_string(header.size()));
  }
  for (auto& [name, slot] : slots_) slot.begin += kSafetensorsPrefix + header.size();
  return LittleEndian(header.size()) + header;
}

// Creates the temporary file beside the final place, so that the rename stays inside one file system.
void SafetensorsWriter::CreateTemporary() {
  const std::string stem = "." + path_.filename().native() + "." + std::to_string(::getpid()) + ".";
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::filesystem::path candidate = path_.parent_path() / (stem + std::to_string(attempt) + ".tmp");
    file_ = UniqueFd(::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_) {
      temporary_ = std::move(candidate);
      return;
    }
    if (errno != EEXIST) break;
  }
  FailErrno("cannot create a temporary file beside it");
}

void SafetensorsWriter::WriteAt(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) FailErrno("cannot write at byte " + std::to_string(offset));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void SafetensorsWriter::Write(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) Fail("no tensor called " + Quote(name) + " was announced");
  Slot& slot = found->second;
  if (slot.written) Fail("tensor " + Quote(name) + " was written before");
  if (bytes.size() != slot.bytes) {
    Fail("tensor " + Quote(name) + ": expected " + std::to_string(slot.bytes) + " bytes, got " +
         std::to_string(bytes.size()));
  }
  WriteAt(slot.begin, bytes);
  slot.written = true;
}

void SafetensorsWriter::Commit() {
  for (const TensorSpec& spec : specs_) {
    if (slots_.at(spec.name).written) continue;
    throw Error(ErrorCode::kFailedPrecondition,
                Quote(path_.native()) + ": tensor " + Quote(spec.name) + " is not written");
  }
  if (::fsync(file_.get()) != 0) FailErrno("cannot flush to disk");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) FailErrno("cannot rename the finished file");
  temporary_.clear();
  file_ = UniqueFd();
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) FailErrno("cannot flush its folder to disk");
}

void SafetensorsWriter::Fail(const std::string& what) const {
  throw Error(ErrorCode::kInvalidArgument, Quote(path_.native()) + ": " + what);
}

void SafetensorsWriter::FailErrno(const std::string& what) const {
  const int error = errno;
  throw SystemError(error, error == EDQUOT ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument,
                    Quote(path_.native()) + ": " + what);
}

void WriteSafetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const SafetensorsWriter::Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& named : tensors) specs.push_back({named.name, named.tensor.dtype, named.tensor.shape});
  SafetensorsWriter writer(path, std::move(specs), metadata);
  for (const NamedTensor& named : tensors) {
    writer.Write(named.name, {named.tensor.data, static_cast<std::size_t>(named.tensor.num_bytes())});
  }
  writer.Commit();
}

}  // namespace layercast
