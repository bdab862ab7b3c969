// A publisher that gets no memory for a version, or no descriptors to begin with: it says so in numbers, nothing of the
// version is published, and the next one is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "layercast/publisher.h"
#include "tests/support/error_of.h"
#include "tests/support/forked_child.h"
#include "tests/support/no_more_files.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::IsTrueInAForkedChild;

constexpr std::int64_t kMoreThanASegment = std::int64_t{300} << 20;

TEST(PublisherShortage, OfDescriptorsIsToldWithANumberThatWouldDo) {
  const testing::NoMoreFiles none;
  EXPECT_THAT(ErrorOf([] { const Publisher publisher(PublisherOptions{}); }, ErrorCode::kResourceExhausted),
              HasSubstr("RLIMIT_NOFILE (ulimit -n) is 0, expected at least"));
}

#ifndef __SANITIZE_THREAD__  // which needs address space of its own, as AddressSanitizer does
#ifndef __SANITIZE_ADDRESS__
rlim_t AddressSpaceInUse() {
  unsigned long pages = 0;
  std::FILE* const statm = std::fopen("/proc/self/statm", "r");
  const bool read = std::fscanf(statm, "%lu", &pages) == 1;
  std::fclose(statm);
  return read ? rlim_t{pages} * 4096 : 0;
}

Weights Copied(std::int64_t bytes, const Buffer& from) {
  const NamedTensor tensor{"w", {DType::kU8, {bytes}, from.data(), {}}, nullptr};
  return {.specs = {}, .walk = [tensor](std::span<const std::string>) {
            return MakeWeightsIterator(std::vector<NamedTensor>{tensor});
          }};
}

TEST(PublisherShortage, OfMemoryForAVersionPublishesNothingOfIt) {
  EXPECT_TRUE(IsTrueInAForkedChild([] {
    HostMemory host;
    const Buffer zeros(host, static_cast<std::size_t>(kMoreThanASegment));  // never read
    Publisher publisher(PublisherOptions{.threads = 1});
    rlimit before{};
    ::getrlimit(RLIMIT_AS, &before);
    const rlimit none{AddressSpaceInUse() + (std::size_t{64} << 20), before.rlim_max};
    ::setrlimit(RLIMIT_AS, &none);
    const std::string said =
        ErrorOf([&] { publisher.Publish({.lineage = "run", .step = 1}, Copied(kMoreThanASegment, zeros)); },
                ErrorCode::kResourceExhausted);
    ::setrlimit(RLIMIT_AS, &before);
    std::fprintf(stderr, "%s\n", said.c_str());
    std::fill_n(zeros.data(), 5, std::byte{1});
    const PublishedVersion next = publisher.Publish({.lineage = "run", .step = 1}, Copied(5, zeros));
    return said.find("a copy of 'w'") != std::string::npos && next.version().step == 1 &&
           said.find("asked for " + std::to_string(kMoreThanASegment) + " bytes") != std::string::npos &&
           said.find("RLIMIT_AS is " + std::to_string(none.rlim_cur)) != std::string::npos;
  }));
}
#endif
#endif

}  // namespace
}  // namespace layercast
