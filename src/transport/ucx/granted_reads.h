// What one receiver may read one-sided, as its publisher sees it: the way that it reads by, and the requests that are
// granted until it says that it has read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/control_socket.h"
#include "src/transport/offer_book.h"
#include "src/transport/reply_queue.h"
#include "src/transport/token.h"
#include "src/transport/ucx/messages.h"
#include "src/transport/ucx/readable_offers.h"

namespace layercast::ucx_channel {

// One thread only (the service's).
class GrantedReads {
 public:
  // The token is what the receiver reads first, to see that it can. Throws kUnsupported and kUnavailable.
  GrantedReads(OfferBook& book, ReadableOffers& offers, const Token& token);
  // After it nothing is read for this receiver.
  ~GrantedReads();
  GrantedReads(const GrantedReads&) = delete;
  GrantedReads& operator=(const GrantedReads&) = delete;

  ReadTarget& target() { return *target_; }
  const ReadTarget& target() const { return *target_; }
  // What the receiver's welcome says of it.
  Welcome Describe(const Token& token) const;

  std::size_t size() const { return granted_.size(); }
  bool Hold(const Offered& offered) const;
  // Tells the receiver where to read what it has asked for. Throws kNotFound (the offer was removed), kCorrupt (a
  // ticket that is granted) and kUnsupported.
  void Grant(const Reply& reply, ControlSocket& control);
  // Takes back what has been read. Throws kCorrupt: it was not granted.
  void Return(std::uint64_t ticket);

 private:
  void SendPlaces(const Reply& reply, ControlSocket& control);

  OfferBook& book_;
  ReadableOffers& offers_;
  HostMemory host_;
  Buffer token_;  // a copy that can be registered
  std::unique_ptr<RegisteredMemory> registered_token_;
  std::map<std::uint64_t, std::shared_ptr<Offered>> granted_;  // by ticket; second owner: the book
  std::unique_ptr<ReadTarget> target_;
};

}  // namespace layercast::ucx_channel
