// Fake devices that read by themselves. Each target has a thread that serves reads of registered memory over a socket,
// whatever the publisher does, and refuses reads that no key allows. Works within and between processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::test {

// What a test can change and observe. Shared by everything that a FakeOneSided has made.
struct FakeDevice {
  std::atomic<bool> here{true};
  std::atomic<bool> can_register{true};
  std::atomic<bool> can_connect{true};
  std::atomic<bool> stuck{false};          // reads are accepted, and none is answered
  std::atomic<bool> lies{false};           // reads bring other bytes than were asked for
  std::atomic<std::size_t> registered{0};  // registrations so far
  std::atomic<std::size_t> held{0};        // registrations that are held now
  std::atomic<std::size_t> refused{0};     // reads that no key allowed
};

// Thread-safe.
class FakeOneSided final : public ucx_channel::OneSided {
 public:
  FakeDevice& device() const { return *device_; }

  bool Here() const override { return device_->here; }
  std::unique_ptr<ucx_channel::RemoteMemory> MakeMemory() const override;
  std::unique_ptr<ucx_channel::RemoteReads> MakeReads() const override;

 private:
  const std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();  // second owners: all that was made
};

}  // namespace layercast::test
