// What stands behind the handle of a published version: its memory, and the way to the service that offers it. Used by
// the publisher and by what it keeps.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>

#include "layercast/publisher.h"
#include "src/session/link/offered_version.h"
#include "src/session/offer/offer_service.h"
#include "trainer_side/durable/durable_versions.h"
#include "trainer_side/snapshot.h"

namespace layercast {

// Resource; thread-safe.
struct PublishedState {
  std::shared_ptr<OfferedVersion> offered;  // the second owner is the service
  std::mutex mutex;
  Snapshot memory;                     // empty for a stream, and once released; guarded by mutex
  std::shared_ptr<WalkFunction> walk;  // of a stream, empty once released; the other owner is `offered`, in its walks
  OfferService* service = nullptr;     // null once released, or the publisher is gone; guarded by mutex
  std::weak_ptr<DurableVersions> durable;  // empty: there is no store; the owner is the publisher

  void Withdraw() {
    const std::lock_guard lock(mutex);
    if (service != nullptr) service->Withdraw(offered);
  }

  // Has the version's readers refused.
  void Expire() {
    const std::lock_guard lock(mutex);
    if (service != nullptr) service->Expire(offered);
  }

  // When it has returned true, no channel reads the memory any more.
  bool WaitReleased(std::chrono::milliseconds timeout) {
    const bool released = offered->WaitReleased(Deadline::After(timeout));
    const std::lock_guard lock(mutex);
    if (service == nullptr) return true;
    if (released) {
      service->Forget(offered);
      LetGo();
    }
    return released;
  }

  bool WaitStored(std::chrono::milliseconds timeout) const {
    const std::shared_ptr<DurableVersions> open = durable.lock();
    return open != nullptr && open->Wait(*offered, Deadline::After(timeout));
  }

  // Whether the memory is gone.
  bool IsReleased() {
    const std::lock_guard lock(mutex);
    return service == nullptr;
  }

  // The copies that the version holds.
  std::vector<std::shared_ptr<const Buffer>> Copies() {
    const std::lock_guard lock(mutex);
    return memory.copies;
  }

  // Called when the publisher is destroyed, and with it its arena, where the memory lies.
  void Orphan() {
    offered->Retire();
    const std::lock_guard lock(mutex);
    LetGo();
  }

 private:
  // Drops the memory and the way to the publisher, because the user may keep a handle for as long as they like.
  void LetGo() {
    memory = Snapshot();
    if (walk != nullptr) *walk = nullptr;  // nobody walks what is released
    service = nullptr;
  }
};

}  // namespace layercast
