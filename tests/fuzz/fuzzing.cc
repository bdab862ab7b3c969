#include "tests/fuzz/fuzzing.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <span>
#include <stdexcept>

#include "src/base/unique_fd.h"
#include "tests/fuzz/damage.h"
#include "tests/support/hex.h"

namespace layercast {
namespace {

constexpr std::size_t kLongestInput = 1U << 16;  // damage makes them longer and longer
constexpr std::size_t kLongestKept = 1U << 11;
constexpr std::size_t kMostKept = 64;  // of a target
constexpr std::size_t kMostDamagedFurther = 512;

// The input at hand, in memory that is a file: it is there when the process is not any more.
class InputAtHand {
 public:
  explicit InputAtHand(const std::string& target)
      : path_(std::filesystem::temp_directory_path() /
              ("layercast-fuzz-" + target + "-" + std::to_string(::getpid()) + ".input")) {
    const UniqueFd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file || ::ftruncate(file.get(), kBytes) != 0) throw std::runtime_error("cannot write " + path_.native());
    void* const mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("cannot map " + path_.native());
    bytes_ = static_cast<char*>(mapped);
  }
  ~InputAtHand() {
    ::munmap(bytes_, kBytes);
    if (::testing::Test::HasFailure()) {
      std::filesystem::resize_file(path_, size_);
    } else {
      std::filesystem::remove(path_);
    }
  }
  InputAtHand(const InputAtHand&) = delete;
  InputAtHand& operator=(const InputAtHand&) = delete;

  void Put(const std::string& input) {
    size_ = input.size();
    std::memcpy(bytes_, input.data(), size_);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  static constexpr std::size_t kBytes = 1U << 20;

  const std::filesystem::path path_;
  char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

std::filesystem::path CorpusOf(const std::string& target) {
  return std::filesystem::path(FUZZ_CORPUS) / (target + ".hex");
}

std::vector<std::string> ReadCorpus(const std::string& target) {
  std::ifstream file(CorpusOf(target));
  std::vector<std::string> inputs;
  for (std::string line; std::getline(file, line);) {
    std::string& input = inputs.emplace_back();
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      input += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
  }
  return inputs;
}

void AddToCorpus(const std::string& target, const std::string& input) {
  std::ofstream(CorpusOf(target), std::ios::app) << test::Hex(std::as_bytes(std::span(input))) << '\n';
}

// What a message says without what it says it of.
std::string Skeleton(const std::string& message) {
  std::string skeleton;
  bool quoted = false;
  for (const char letter : message) {
    if (letter == '\'') quoted = !quoted;
    if (!quoted && (letter == ' ' || (letter >= 'a' && letter <= 'z'))) skeleton += letter;
  }
  return skeleton.substr(0, 80);
}

class Fuzzer {
 public:
  explicit Fuzzer(const FuzzTarget& target)
      : target_(target), at_hand_(target.name), damage_(kSeed, target.likely), corpus_(ReadCorpus(target.name)) {}

  Fuzzed Run(std::size_t inputs) {
    pool_ = target_.seeds;
    pool_.insert(pool_.end(), corpus_.begin(), corpus_.end());
    for (std::size_t i = 0, known = pool_.size(); i < known; ++i) Give(std::string(pool_[i]), /*is_new=*/false);
    while (given_ < inputs && !::testing::Test::HasFailure()) {
      // Half of them from what was right, since most in the pool is broken at its first byte by now.
      const std::vector<std::string>& from = damage_.Below(2) == 0 ? target_.seeds : pool_;
      Give(damage_.Apply(from[damage_.Below(from.size())]), /*is_new=*/true);
    }
    return {accepted_, outcomes_.size()};
  }

 private:
  static constexpr std::uint32_t kSeed = 5;

  void Give(const std::string& input, bool is_new) {
    if (::testing::Test::HasFailure()) return;
    at_hand_.Put(input);
    ++given_;
    try {
      const std::string why = target_.take(input);
      if (why.empty()) ++accepted_;
      if (outcomes_.insert(Skeleton(why)).second && is_new) Keep(input);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "what reads it threw " << error.what();
    }
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << target_.name << ": input " << given_ << ", which is in " << at_hand_.path();
    }
  }

  void Keep(const std::string& input) {
    if (pool_.size() < kMostDamagedFurther && input.size() <= kLongestInput) pool_.push_back(input);
    if (std::getenv("LAYERCAST_FUZZ_KEEP") == nullptr || input.size() > kLongestKept || kept_ >= kMostKept) return;
    AddToCorpus(target_.name, input);
    ++kept_;
  }

  const FuzzTarget& target_;
  InputAtHand at_hand_;
  Damage damage_;
  const std::vector<std::string> corpus_;
  std::vector<std::string> pool_;  // what is damaged
  std::set<std::string> outcomes_;
  std::size_t kept_ = corpus_.size();
  std::size_t given_ = 0;
  std::size_t accepted_ = 0;
};

}  // namespace

Fuzzed Fuzz(const FuzzTarget& target, std::size_t usual) {
  const Fuzzed fuzzed = Fuzzer(target).Run(FuzzInputs(usual));
  std::cout << "[  inputs  ] " << target.name << ": " << FuzzInputs(usual) << ", accepted " << fuzzed.accepted
            << ", outcomes " << fuzzed.outcomes << std::endl;
  return fuzzed;
}

std::vector<std::byte> ExactBytes(const std::string& input) {
  const auto* const begin = reinterpret_cast<const std::byte*>(input.data());
  return {begin, begin + input.size()};
}

}  // namespace layercast
