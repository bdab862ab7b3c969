// Data channels against the limit for the same bytes, measured in the same run: memcpy for shm, bare UCX for ucx, and
// bare libzmq for zmq. Every sample of a channel follows one of its limit; `ratio` is the median of the quotients of
// such pairs.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "bench/samples.h"
#include "layercast/memory.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/chunks/chunk_window.h"
#include "src/session/chunks/kept_chunks.h"
#include "src/transport/channel/channel.h"
#include "src/wire/schedule.h"
#if LAYERCAST_HAVE_UCX
#include "bench/bare_ucx.h"
#include "src/transport/all/transports.h"
#endif

namespace layercast::bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kChunk = 4 * kMiB;
constexpr std::size_t kCredits = 4;  // chunks under way
constexpr std::chrono::seconds kPatience{30};

double SecondsOf(const std::function<void()>& step) {
  const auto start = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Cost {
  std::vector<double> elapsed;
  std::vector<double> processor;
  void Add(const std::function<void()>& step) {
    const double before = ProcessorSeconds();
    elapsed.push_back(SecondsOf(step));
    processor.push_back(ProcessorSeconds() - before);
  }
};

std::vector<double> Quotients(const std::vector<double>& of, const std::vector<double>& by) {
  std::vector<double> quotients;
  for (std::size_t i = 0; i < of.size(); ++i) quotients.push_back(of[i] / by[i]);
  return quotients;
}

// Runs channel and limit in turn, and reports the speed of each and their ratio.
void Compare(benchmark::State& state, std::size_t bytes, const std::function<void()>& channel,
             const std::function<void()>& limit) {
  channel();
  limit();  // from here on, both have touched their memory
  Cost channel_cost;
  Cost limit_cost;
  for (auto _ : state) {
    limit_cost.Add(limit);
    channel_cost.Add(channel);
    state.SetIterationTime(channel_cost.elapsed.back());
  }
  state.counters["GB/s"] = static_cast<double>(bytes) * 1e-9 / Median(channel_cost.elapsed);
  state.counters["limit_GB/s"] = static_cast<double>(bytes) * 1e-9 / Median(limit_cost.elapsed);
  state.counters["ratio"] = Median(Quotients(limit_cost.elapsed, channel_cost.elapsed));
  state.counters["ratio_processor"] = Median(Quotients(limit_cost.processor, channel_cost.processor));
}

std::unique_ptr<Transport> Named(std::string_view name) {
  for (auto& transport : AllTransports()) {
    if (transport->name() == name) return std::move(transport);
  }
  return nullptr;
}

// `bytes` in `tensors` tensors of the same size, offered as number 1.
struct Publisher {
  Publisher(const Transport& transport, std::size_t bytes, std::size_t tensors = 1)
      : end(transport.Offering({})), memory(end->arena() != nullptr ? *end->arena() : host, bytes) {
    std::memset(memory.data(), 1, bytes);
    Offer offer{1, {}};
    const std::size_t each = bytes / tensors;
    for (std::size_t i = 0; i < tensors; ++i) offer.tensors.push_back({memory.data() + i * each, each});
    end->Add(offer);
  }
  ~Publisher() { end->Remove(1); }

  HostMemory host;
  std::unique_ptr<OfferingEnd> end;
  Buffer memory;
};

Region ChunkAt(std::size_t offset, std::size_t bytes) { return {0, offset, bytes, 1, bytes}; }

// Times the first request for an offer by a receiver that has mapped nothing yet, and then reading a byte of each page.
void ShmAttach(benchmark::State& state) {
  const std::size_t bytes = static_cast<std::size_t>(state.range(0)) * kMiB;
  const auto publisher_transport = Named("shm");
  const auto tensors = static_cast<std::size_t>(state.range(1));
  const Publisher publisher(*publisher_transport, bytes, tensors);
  std::vector<double> attach;
  std::vector<double> touch;
  for (auto _ : state) {
    const auto transport = Named("shm");  // a new one each time, because it keeps its mappings
    const auto receiver = transport->Connect(publisher.end->address(), Deadline::After(kPatience));
    const Region region = ChunkAt(0, bytes / tensors);
    std::optional<ChunkCompletion> completion;
    attach.push_back(SecondsOf([&] {
      receiver->Submit({1, 1, {&region, 1}, {}});
      completion = receiver->Poll(Deadline::After(kPatience));
    }));
    touch.push_back(SecondsOf([&] {
      unsigned sum = 0;
      for (std::size_t page = 0; page < bytes / tensors; page += 4096) {
        sum += std::to_integer<unsigned>(completion->views[0].base[page]);
      }
      benchmark::DoNotOptimize(sum);
    }));
    state.SetIterationTime(attach.back());
  }
  state.counters["attach_ms"] = Median(attach) * 1e3;
  state.counters["attach_ms_worst"] = *std::max_element(attach.begin(), attach.end()) * 1e3;
  state.counters["first_touch_ms"] = Median(touch) * 1e3;
}

// Copies chunk by chunk, as a receiver copies out what it relays.
void ShmCopy(benchmark::State& state) {
  const std::size_t bytes = 512 * kMiB;
  const auto transport = Named("shm");
  const Publisher publisher(*transport, bytes);
  const auto receiver = transport->Connect(publisher.end->address(), Deadline::After(kPatience));
  HostMemory host;
  const Buffer plain(host, bytes);
  const Buffer destination(host, bytes);
  std::memset(plain.data(), 2, bytes);
  std::memset(destination.data(), 3, bytes);
  Schedule schedule;
  for (std::size_t offset = 0; offset < bytes; offset += kChunk) {
    schedule.Add(std::vector<Region>{ChunkAt(offset, kChunk)});
  }
  KeptChunks copies(schedule, host, "what is kept");
  HostChunkMemory slots(host);
  WorkerPool pool(static_cast<std::size_t>(state.range(0)));
  ChunkWindow window(*receiver, {.places = {slots}, .kept = &copies, .copies_out = true, .pool = &pool});
  Compare(
      state, bytes,
      [&] {
        for (std::uint32_t chunk = 0; chunk < schedule.chunks().size(); ++chunk) {
          window.Submit(chunk, 1, schedule.RegionsOf(schedule.chunks()[chunk]), kChunk);
          if (!window.Poll(Deadline::After(kPatience))) throw std::runtime_error("nothing came");
          window.Done(chunk);
        }
      },
      [&] {
        pool.For(bytes / kChunk, [&](std::size_t i) {
          std::memcpy(destination.data() + i * kChunk, plain.data() + i * kChunk, kChunk);
        });
      });
}

// Several engines read at once, each with a connection of its own, a thread, and a copy of the whole version.
void ShmReaders(benchmark::State& state) {
  const auto readers = static_cast<std::size_t>(state.range(0));
  const std::size_t bytes = 128 * kMiB;
  const auto transport = Named("shm");
  const Publisher publisher(*transport, bytes);
  HostMemory host;
  const Buffer plain(host, bytes);
  std::memset(plain.data(), 2, bytes);
  std::vector<std::unique_ptr<FetchingEnd>> ends;
  std::vector<Buffer> destinations;
  for (std::size_t i = 0; i < readers; ++i) {
    ends.push_back(transport->Connect(publisher.end->address(), Deadline::After(kPatience)));
    destinations.emplace_back(host, bytes);
    std::memset(destinations.back().data(), 3, bytes);
  }
  const auto at_once = [&](const auto& read) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < readers; ++i) threads.emplace_back([&read, i] { read(i); });
  };
  Compare(
      state, readers * bytes,
      [&] {
        at_once([&](std::size_t i) {
          for (std::size_t offset = 0; offset < bytes; offset += kChunk) {
            const Region region = ChunkAt(offset, kChunk);
            ends[i]->Submit({offset, 1, {&region, 1}, {}});
            Pack(ends[i]->Poll(Deadline::After(kPatience))->views[0], destinations[i].data() + offset);
          }
        });
      },
      [&] {
        at_once([&](std::size_t i) {
          for (std::size_t offset = 0; offset < bytes; offset += kChunk) {
            std::memcpy(destinations[i].data() + offset, plain.data() + offset, kChunk);
          }
        });
      });
}

// Bare libzmq, the limit of the zmq channel: the same sockets, the same messages of 1 MiB sent from where they lie, the
// same number under way and the same copy at the end, and nothing else.
class BareZmq {
 public:
  explicit BareZmq(const Buffer& source) : source_(source), router_(server_, ZMQ_ROUTER), dealer_(client_, ZMQ_DEALER) {
    router_.bind("tcp://127.0.0.1:*");
    dealer_.connect(router_.get(zmq::sockopt::last_endpoint));
    thread_ = std::jthread([this] { Serve(); });
  }
  ~BareZmq() { dealer_.send(zmq::message_t(), zmq::send_flags::none); }

  void Fetch(std::byte* destination) {
    const std::size_t chunks = source_.size() / kChunk;
    std::size_t asked = 0;
    for (; asked < std::min(kCredits, chunks); ++asked) Ask(asked);
    for (std::size_t piece = 0; piece < source_.size() / kMiB; ++piece) {
      zmq::message_t message;
      benchmark::DoNotOptimize(dealer_.recv(message));
      std::memcpy(destination + piece * kMiB, message.data(), message.size());
      if ((piece + 1) % (kChunk / kMiB) == 0 && asked < chunks) Ask(asked++);
    }
  }

 private:
  void Ask(std::size_t chunk) { dealer_.send(zmq::message_t(&chunk, sizeof(chunk)), zmq::send_flags::none); }

  void Serve() {
    zmq::message_t peer;
    zmq::message_t request;
    while (router_.recv(peer) && router_.recv(request) && request.size() != 0) {
      std::size_t chunk = 0;
      std::memcpy(&chunk, request.data(), sizeof(chunk));
      for (std::size_t offset = 0; offset < kChunk; offset += kMiB) {
        router_.send(zmq::message_t(peer.data(), peer.size()), zmq::send_flags::sndmore);
        zmq::message_t piece(source_.data() + chunk * kChunk + offset, kMiB, [](void*, void*) {}, nullptr);
        router_.send(piece, zmq::send_flags::none);
      }
    }
  }

  const Buffer& source_;
  zmq::context_t server_;
  zmq::context_t client_;
  zmq::socket_t router_;
  zmq::socket_t dealer_;
  std::jthread thread_;
};

void FetchAll(FetchingEnd& receiver, std::span<std::byte> destination) {
  std::size_t asked = 0;
  const auto ask = [&] {
    const Region region = ChunkAt(asked, kChunk);
    receiver.Submit({asked, 1, {&region, 1}, destination.subspan(asked, kChunk)});
    asked += kChunk;
  };
  for (std::size_t i = 0; i < kCredits; ++i) ask();
  for (std::size_t got = 0; got < destination.size(); got += kChunk) {
    if (!receiver.Poll(Deadline::After(kPatience))) throw std::runtime_error("nothing came");
    if (asked < destination.size()) ask();
  }
}

void ZmqFetch(benchmark::State& state) {
  const std::size_t bytes = 512 * kMiB;
  const auto transport = Named("zmq");
  const Publisher publisher(*transport, bytes);
  const auto receiver = transport->Connect(publisher.end->address(), Deadline::After(kPatience));
  HostMemory host;
  const Buffer destination(host, bytes);
  std::memset(destination.data(), 3, bytes);
  BareZmq bare(publisher.memory);
  Compare(state, bytes, [&] { FetchAll(*receiver, destination.span()); }, [&] { bare.Fetch(destination.data()); });
}

#if LAYERCAST_HAVE_UCX
void UcxFetch(benchmark::State& state, ucx_channel::Lanes lanes) {
  if (lanes == ucx_channel::Lanes::kNetwork) ::setenv("UCX_TLS", "tcp", 1);
  const std::size_t bytes = 512 * kMiB;
  const auto transport = Named("ucx");
  const Publisher publisher(*transport, bytes);
  const auto receiver = transport->Connect(publisher.end->address(), Deadline::After(kPatience));
  HostMemory host;
  const Buffer destination(host, bytes);
  std::memset(destination.data(), 3, bytes);
  BareUcx bare(publisher.memory, lanes);
  ::unsetenv("UCX_TLS");
  Compare(state, bytes, [&] { FetchAll(*receiver, destination.span()); }, [&] { bare.Fetch(destination.data()); });
}
BENCHMARK_CAPTURE(UcxFetch, shared_memory, ucx_channel::Lanes::kSharedMemory)->Iterations(21)->UseManualTime();
BENCHMARK_CAPTURE(UcxFetch, tcp, ucx_channel::Lanes::kNetwork)->Iterations(21)->UseManualTime();
#endif

BENCHMARK(ShmAttach)
    ->ArgNames({"MiB", "tensors"})
    ->Args({16, 1})
    ->Args({256, 1})
    ->Args({1024, 1})
    ->Args({1024, 1000})
    ->Args({1024, 60'000})
    ->Iterations(21)
    ->UseManualTime();
BENCHMARK(ShmCopy)->ArgName("threads")->Arg(1)->Arg(2)->Iterations(21)->UseManualTime();
BENCHMARK(ShmReaders)->ArgName("readers")->Arg(4)->Iterations(21)->UseManualTime();
BENCHMARK(ZmqFetch)->Iterations(21)->UseManualTime();

}  // namespace
}  // namespace layercast::bench

int main(int argc, char** argv) {
  // libzmq allocates memory for every message that it receives, and by default glibc gives most of it back to the
  // kernel each time. The page faults vary from run to run, and would drown both sides of the comparison.
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
