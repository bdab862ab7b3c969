// What the tests of the cuda_ipc channel share: its two ends, each over the fakes of CUDA's driver and of a device.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "src/net/control_socket.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/fakes/fake_channel_device.h"
#include "tests/support/fakes/fake_ipc.h"

namespace layercast::cuda_ipc_channel {

using test::Fetch;
using test::FetchOne;
using test::kPatience;
using Bytes = std::vector<std::byte>;

inline constexpr std::array<std::size_t, 2> kSizes{5'000'000, 4096};

inline Deadline InPatience() { return Deadline::After(kPatience); }

// One process's CUDA, and the channel over it.
struct PlayedGpu {
  std::shared_ptr<test::FakeChannelDevice> device = std::make_shared<test::FakeChannelDevice>();
  std::shared_ptr<test::FakeIpc> driver = std::make_shared<test::FakeIpc>(device);
  std::unique_ptr<Transport> transport = MakeCudaIpcTransport([this] { return CudaIpcParts{driver, device}; });
};

inline std::optional<Bytes> NextMessage(ControlSocket& socket) {
  for (const Deadline deadline = InPatience(); !deadline.Passed();) {
    if (auto message = socket.Receive()) return message;
    pollfd item{socket.fd(), POLLIN, 0};
    ::poll(&item, 1, static_cast<int>(deadline.Remaining().count()));
  }
  return std::nullopt;
}

// Waits for `what`, which another thread makes true.
template <typename What>
bool Becomes(const What& what) {
  for (const Deadline deadline = InPatience(); !deadline.Passed(); std::this_thread::yield()) {
    if (what()) return true;
  }
  return false;
}

class CudaIpc : public ::testing::Test {
 protected:
  void Publish() { publisher_ = there_.transport->Offering({}); }
  std::unique_ptr<FetchingEnd> Connect() { return here_.transport->Connect(publisher_->address(), InPatience()); }
  static void ExpectBytes(FetchingEnd& receiver, std::uint64_t offer_id, std::uint64_t round = 0) {
    Fetch fetch({{0, 1, 99'999, 1, 99'999}, {1, 3, 7, 100, 40}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(receiver, offer_id, fetch), round));
  }
  void ExpectServing(std::uint64_t offer_id, std::uint64_t round = 0) { ExpectBytes(*Connect(), offer_id, round); }

  PlayedGpu there_;
  PlayedGpu here_;
  std::unique_ptr<OfferingEnd> publisher_;
};

}  // namespace layercast::cuda_ipc_channel
