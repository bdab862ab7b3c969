// What one receiver may read one-sided, as its publisher sees it: the target through which it reads, and the requests
// that are granted to it until it says that it has read them. Part of Receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "src/net/control_socket.h"
#include "src/net/token.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/channel/reply_queue.h"
#include "src/transport/ucx/one_sided/readable_offers.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

// Resource; one thread only (the service thread).
class GrantedReads {
 public:
  // `token` is what the receiver reads first, to see that its reads work. Throws kUnsupported and kUnavailable.
  GrantedReads(OfferBook& book, ReadableOffers& offers, const Token& token);
  // After it this receiver reads nothing any more.
  ~GrantedReads();
  GrantedReads(const GrantedReads&) = delete;
  GrantedReads& operator=(const GrantedReads&) = delete;

  ReadTarget& target() { return *target_; }
  const ReadTarget& target() const { return *target_; }
  // The WELCOME that tells the receiver how to read.
  Welcome Describe(const Token& token) const;

  std::size_t size() const { return granted_.size(); }
  bool HoldOverdue() const;  // whether anything is granted of an offer that was removed long ago
  // Tells the receiver where to read what it has asked for. Throws kNotFound (the offer was removed), kCorrupt (the
  // ticket is granted already) and kUnsupported (the memory cannot be registered).
  void Grant(const Reply& reply, ControlSocket& control);
  // Takes back the grant of a request that has been read. Throws kCorrupt if it was not granted.
  void Return(std::uint64_t ticket);

 private:
  void SendPlaces(const Reply& reply, ControlSocket& control);

  OfferBook& book_;
  ReadableOffers& offers_;
  HostMemory host_;
  Buffer token_;  // a copy that can be registered
  std::unique_ptr<RegisteredMemory> registered_token_;
  std::map<std::uint64_t, OfferUse> granted_;  // by ticket
  std::unique_ptr<ReadTarget> target_;
};

}  // namespace layercast::ucx_channel
