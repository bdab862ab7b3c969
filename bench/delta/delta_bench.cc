// The delta codec, one core: each direction as a ratio to the time that memory takes to read both versions, measured in
// the same run by samples that take turns (in processor time, since other programs may run), and the size as a share of
// the dense bytes. Speeds are of model bytes. Synthetic weights change as AdamW changes them: by the exponent of the
// base.
//
//   build/release/bench/delta_bench [--target=AVX2] [--versions=DIR]
//
// With versions that train_versions.py kept, also the sizes of real steps, and of eight that are folded.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/samples.h"
#include "bench/streaming_limit.h"
#include "src/base/digest/digest.h"
#include "src/delta/delta_density.h"
#include "src/delta/delta_frame.h"

namespace layercast::bench {
namespace {

constexpr std::size_t kElements = std::size_t{32} << 20;  // 64 MiB a version
constexpr int kTurns = 15;

using Bytes = std::vector<std::byte>;

// Two versions, their digests, and memory for a third.
struct Pair {
  std::vector<std::uint16_t> base;
  std::vector<std::uint16_t> next;
  Digest base_digest;
  Digest next_digest;

  KnownBytes known_base() const { return {std::as_bytes(std::span(base)), base_digest}; }
  KnownBytes known_next() const { return {std::as_bytes(std::span(next)), next_digest}; }
  double gigabytes() const { return static_cast<double>(2 * base.size()) / 1e9; }
};

// The mean density that a factor of 2^-exponent leads to.
double DensityAt(const std::vector<double>& elements_by_exponent, double factor) {
  double changed = 0.0;
  for (std::size_t e = 0; e < elements_by_exponent.size(); ++e) {
    changed += elements_by_exponent[e] * std::min(1.0, factor * std::exp2(-static_cast<double>(e)));
  }
  return changed / std::accumulate(elements_by_exponent.begin(), elements_by_exponent.end(), 0.0);
}

// P(change) = min(1, factor / 2^exponent), with the factor that gives the density.
std::vector<double> Likelihoods(const std::vector<std::uint16_t>& weights, double density) {
  std::vector<double> elements(256);
  for (const std::uint16_t weight : weights) elements[weight >> 7 & 0xff] += 1.0;
  double low = 1.0;
  double high = std::exp2(200.0);
  for (int i = 0; i < 200; ++i) {
    const double middle = std::sqrt(low * high);
    (DensityAt(elements, middle) < density ? low : high) = middle;
  }
  std::vector<double> likelihoods(256);
  for (std::size_t e = 0; e < likelihoods.size(); ++e) {
    likelihoods[e] = std::min(1.0, low * std::exp2(-static_cast<double>(e)));
  }
  return likelihoods;
}

// In ulp, as measured on steps of AdamW: 88 % one, 5 % two, 3 % up to four, 2 % up to eight, the rest more.
int StepSize(std::uint64_t random) {
  const std::uint64_t percent = random % 100;
  const std::uint64_t more = random / 100;
  if (percent < 88) return 1;
  if (percent < 93) return 2;
  if (percent < 96) return static_cast<int>(3 + more % 2);
  if (percent < 98) return static_cast<int>(5 + more % 4);
  return static_cast<int>(9 + more % 200);
}

Pair Drifted(double density) {
  Pair pair{.base = NormalBf16(kElements), .next = {}, .base_digest = {}, .next_digest = {}};
  const std::vector<double> likelihoods = Likelihoods(pair.base, density);
  std::mt19937_64 random(7);
  pair.next = pair.base;
  for (std::uint16_t& weight : pair.next) {
    const auto chance = static_cast<double>(random() >> 11) * 0x1p-53;
    if (chance >= likelihoods[weight >> 7 & 0xff]) continue;
    const std::uint64_t more = random();
    const int step = StepSize(more >> 1);
    weight = static_cast<std::uint16_t>(weight + ((more & 1) != 0 ? step : -step));
  }
  pair.base_digest = DigestOf(pair.known_base().bytes);
  pair.next_digest = DigestOf(pair.known_next().bytes);
  return pair;
}

double SecondsOf(const std::function<void()>& pass) {
  const double start = ThreadSeconds();
  pass();
  return ThreadSeconds() - start;
}

// Reads both versions once, with the faster pattern of the two.
class ReadBoth {
 public:
  explicit ReadBoth(const Pair& pair) : pair_(pair) {
    std::vector<double> seconds[2];
    for (int i = 0; i < 10; ++i) seconds[i % 2].push_back(SecondsOf([&] { Read(kPatterns[i % 2]); }));
    if (Median(seconds[1]) < Median(seconds[0])) faster_ = kPatterns[1];
  }
  void operator()() const { Read(faster_); }

 private:
  static constexpr ReadPattern kPatterns[] = {ReadPattern::kSequential, ReadPattern::kInterleaved};

  void Read(ReadPattern pattern) const {
    for (const std::vector<std::uint16_t>* version : {&pair_.base, &pair_.next}) {
      // From the first whole cache line on, all whole steps.
      const auto bytes = std::as_bytes(std::span(*version));
      const std::size_t skip = (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
      const std::size_t count = (bytes.size() - skip) / 16384 * 16384;
      benchmark::DoNotOptimize(StreamThrough(pattern, Writes::kNone, bytes.data() + skip, count, nullptr));
    }
  }

  const Pair& pair_;
  ReadPattern faster_ = kPatterns[0];
};

// Runs `pass` between runs of the limit, and tells the ratio and the speeds.
void Compare(benchmark::State& state, const Pair& pair, const std::function<void()>& pass) {
  const ReadBoth limit(pair);
  std::vector<double> ratios;
  std::vector<double> seconds;
  std::vector<double> limits;
  double before = SecondsOf(limit);
  for (auto _ : state) {
    seconds.push_back(SecondsOf(pass));
    const double after = SecondsOf(limit);
    limits.push_back((before + after) / 2.0);
    ratios.push_back(limits.back() / seconds.back());
    before = after;
    state.SetIterationTime(seconds.back());
  }
  state.counters["ratio"] = Median(ratios);
  state.counters["GBps"] = pair.gigabytes() / Median(seconds);
  state.counters["limit_GBps"] = pair.gigabytes() / Median(limits);
}

void Encode(benchmark::State& state, const Pair& pair, DeltaEffort effort, bool digests) {
  Bytes frame;
  const auto known = [&](const KnownBytes& bytes) { return digests ? KnownBytes{.bytes = bytes.bytes} : bytes; };
  Compare(state, pair, [&] { frame = EncodeDelta(known(pair.known_base()), known(pair.known_next()), 2, effort); });
  state.counters["percent"] = 100.0 * static_cast<double>(frame.size()) / (1e9 * pair.gigabytes());
  state.SetLabel(std::string(NameOf(ReadDeltaHeader(frame).form)));
}

// There and back again, so that each apply finds its base.
void ApplyInPlace(benchmark::State& state, const Pair& pair, DeltaEffort effort) {
  const Bytes there = EncodeDelta(pair.known_base(), pair.known_next(), 2, effort);
  const Bytes back = EncodeDelta(pair.known_next(), pair.known_base(), 2, effort);
  std::vector<std::uint16_t> bytes = pair.base;
  bool at_base = true;
  Compare(state, pair, [&] {
    ApplyDelta(at_base ? there : back, std::as_writable_bytes(std::span(bytes)),
               at_base ? pair.base_digest : pair.next_digest);
    at_base = !at_base;
  });
}

void ApplyInto(benchmark::State& state, const Pair& pair, DeltaEffort effort, bool digests) {
  const Bytes frame = EncodeDelta(pair.known_base(), pair.known_next(), 2, effort);
  std::vector<std::uint16_t> into(pair.base.size());
  const KnownBytes base = digests ? KnownBytes{.bytes = pair.known_base().bytes} : pair.known_base();
  Compare(state, pair, [&] { ApplyDeltaInto(frame, base, std::as_writable_bytes(std::span(into))); });
}

void DigestOfOne(benchmark::State& state, const Pair& pair) {
  Compare(state, pair, [&] { benchmark::DoNotOptimize(DigestOf(pair.known_base().bytes)); });
}

void CountChanges(benchmark::State& state, const Pair& pair) {
  Compare(state, pair, [&] {
    DensityMeter meter(2);
    constexpr std::size_t kBlock = 65536;
    for (std::size_t at = 0; at < 2 * kElements; at += kBlock) {
      meter.Add(pair.known_base().bytes.subspan(at, kBlock), pair.known_next().bytes.subspan(at, kBlock));
    }
    benchmark::DoNotOptimize(meter.count().changed);
  });
}

void Register(const std::string& name, const std::function<void(benchmark::State&)>& run, int turns = kTurns) {
  benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(turns)->UseManualTime()->Unit(benchmark::kMillisecond);
}

void RegisterSynthetic(double percent) {
  const std::string name = std::to_string(percent).substr(0, 4) + "%/";
  // One pair at a time, made when the first benchmark of it runs.
  const auto pair = std::make_shared<std::unique_ptr<Pair>>();
  const auto of = [=](const std::function<void(benchmark::State&, const Pair&)>& run) {
    return [=](benchmark::State& state) {
      if (*pair == nullptr) *pair = std::make_unique<Pair>(Drifted(percent / 100.0));
      run(state, **pair);
    };
  };
  const std::pair<const char*, DeltaEffort> efforts[] = {
      {"fast", DeltaEffort::kFast}, {"small", DeltaEffort::kSmall}, {"smallest", DeltaEffort::kSmallest}};
  for (const auto& [effort_name, effort] : efforts) {
    const std::string with = "/" + std::string(effort_name);
    Register(name + "encode" + with, of([=](auto& state, const Pair& p) { Encode(state, p, effort, false); }));
    Register(name + "apply_in_place" + with, of([=](auto& state, const Pair& p) { ApplyInPlace(state, p, effort); }));
    Register(name + "apply_into" + with, of([=](auto& state, const Pair& p) { ApplyInto(state, p, effort, false); }));
  }
  Register(name + "encode+digests/small",
           of([](auto& state, const Pair& p) { Encode(state, p, DeltaEffort::kSmall, true); }));
  Register(name + "apply_into+digests/small",
           of([](auto& state, const Pair& p) { ApplyInto(state, p, DeltaEffort::kSmall, true); }));
  Register(name + "digest_of_one", of(DigestOfOne));
  Register(name + "count", of(CountChanges));
  Register(
      name + "done",
      [=](benchmark::State& state) {  // gives the memory back
        pair->reset();
        for (auto _ : state) state.SetIterationTime(1e-9);
      },
      1);
}

// ---- real steps ----------------------------------------------------------------------------------------------------

Bytes ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

double Percent(std::size_t part, std::size_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string VersionName(int number, const char* type) { return std::to_string(number) + "." + type; }

// A frame for all tensors together, and the sum of a frame for each.
void PrintStep(const std::filesystem::path& folder, int from, int to, const char* type, std::size_t element_bytes) {
  const Bytes base = ReadAll(folder / VersionName(from, type));
  const Bytes next = ReadAll(folder / VersionName(to, type));
  DensityMeter meter(element_bytes);
  meter.Add(base, next);
  std::cout << folder.filename().string() << ' ' << type << ' ' << from << "->" << to << ": changed "
            << 100.0 * meter.count().density() << " %, bytes in % of dense";
  for (const DeltaEffort effort : {DeltaEffort::kFast, DeltaEffort::kSmall, DeltaEffort::kSmallest}) {
    const Bytes frame = EncodeDelta({.bytes = base}, {.bytes = next}, element_bytes, effort);
    Bytes applied = base;
    ApplyDelta(frame, applied);
    if (applied != next) std::cout << " WRONG";
    std::cout << ' ' << Percent(frame.size(), next.size()) << " (" << NameOf(ReadDeltaHeader(frame).form) << ')';
  }
  if (element_bytes == 2) {
    std::ifstream sizes(folder / "tensors.txt");
    std::size_t at = 0;
    std::size_t sum = 0;
    for (std::size_t size = 0; sizes >> size; at += size) {
      sum += EncodeDelta({.bytes = std::span(base).subspan(at, size)}, {.bytes = std::span(next).subspan(at, size)},
                         element_bytes, DeltaEffort::kSmallest)
                 .size();
    }
    std::cout << "; a frame for each tensor " << Percent(sum, next.size());
  }
  std::cout << '\n';
}

void PrintFold(const std::filesystem::path& folder) {
  constexpr int kFirst = 20;
  Bytes version = ReadAll(folder / VersionName(kFirst, "bf16"));
  Bytes folded;
  std::size_t chain = 0;
  for (int number = kFirst + 1; number <= kFirst + 8; ++number) {
    const Bytes next = ReadAll(folder / VersionName(number, "bf16"));
    const Bytes frame = EncodeDelta({.bytes = version}, {.bytes = next}, 2, DeltaEffort::kSmall);
    chain += frame.size();
    folded = number == kFirst + 1 ? frame : FoldDeltas(folded, frame, DeltaEffort::kSmall);
    version = next;
  }
  std::cout << folder.filename().string() << " eight steps: folded " << Percent(folded.size(), version.size()) << " ("
            << NameOf(ReadDeltaHeader(folded).form) << "), chain " << Percent(chain, version.size()) << '\n';
}

void PrintReal(const std::filesystem::path& versions) {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(versions)) folders.push_back(entry.path());
  std::ranges::sort(folders);
  for (const std::filesystem::path& folder : folders) {
    PrintStep(folder, 20, 21, "bf16", 2);
    PrintStep(folder, 20, 22, "bf16", 2);
    PrintStep(folder, 20, 21, "fp8", 1);
    PrintFold(folder);
  }
}

// The folder of `--versions=DIR`, which is removed from the arguments; empty without.
std::string TakeVersions(int& argc, char** argv) {
  constexpr std::string_view kOption = "--versions=";
  std::string folder;
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    if (!std::string_view(argument).starts_with(kOption)) return false;
    folder = argument + kOption.size();
    return true;
  });
  argc = static_cast<int>(end - argv);
  return folder;
}

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  layercast::bench::ChooseTarget(argc, argv);
  const std::string versions = layercast::bench::TakeVersions(argc, argv);
  if (!versions.empty()) layercast::bench::PrintReal(versions);
  for (const double percent : {0.1, 1.0, 2.0, 10.0}) layercast::bench::RegisterSynthetic(percent);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
