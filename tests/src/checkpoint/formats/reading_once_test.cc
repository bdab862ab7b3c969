// A checkpoint's files are read once per host: whoever reads them after the first finds the pages there, and copies
// none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "src/base/digest/digest.h"
#include "src/base/unique_fd.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

constexpr std::uint64_t kFileBytes = 16U << 20;  // what else a process may read meanwhile is nothing beside it

// What this process has read so far: copied out of files, and brought in from the disk on its behalf, be it through a
// mapping. Nothing: this kernel does not count.
std::optional<std::uint64_t> BytesRead() {
  std::ifstream counts("/proc/self/io");
  std::uint64_t sum = 0;
  int found = 0;
  std::string name;
  for (std::uint64_t count = 0; counts >> name >> count;) {
    if (name != "rchar:" && name != "read_bytes:") continue;
    sum += count;
    ++found;
  }
  return found == 2 ? std::optional(sum) : std::nullopt;
}

// So that the first who reads it reads the disk, where the file system has one.
void ForgetPages(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file);
  ASSERT_EQ(::fsync(file.get()), 0);
  ASSERT_EQ(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
}

// As a rank does: opens it anew, and looks at every byte.
void ReadAll(const std::filesystem::path& folder) {
  const auto weights = Checkpoint::Open(folder).Weights();
  while (const auto named = weights->Next()) {
    (void)DigestOf({named->tensor.data, static_cast<std::size_t>(named->tensor.num_bytes())});
  }
}

TEST(ReadingOnce, EveryReaderAfterTheFirstSharesItsPages) {
  const TempFolder folder;
  ForgetPages(folder.Write("model.safetensors", OneTensorFile("w", kFileBytes / 4)));
  const std::optional<std::uint64_t> before = BytesRead();
  if (!before) GTEST_SKIP() << "/proc/self/io does not say what a process reads";
  for (int reader = 0; reader < 3; ++reader) ReadAll(folder.path());
  EXPECT_LT(*BytesRead() - *before, kFileBytes * 3 / 2);
}

}  // namespace
}  // namespace layercast
