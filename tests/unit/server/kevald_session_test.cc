// Gradient sessions through gRPC, over a fake device: what is added, what is fetched, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/server/session_fixture.h"

namespace keval::server {
namespace {

using Stub = v1::LinearLogpService::Stub;

TEST_F(SessionTest, MicroBatchesAddAndAFetchTakesThem) {
  Start();
  const std::string session = Create();
  v1::GradientResponse response;
  for (int i = 1; i <= 2; ++i) {
    const grpc::Status status = Add(Batch(session, i), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.session_batch().sequence(), i);
    EXPECT_FALSE(response.session_batch().repeated());
    EXPECT_EQ(response.grad_hidden().data().size(), 4 * kTokens * kHidden);
    EXPECT_FALSE(response.has_grad_weight());
    EXPECT_FALSE(response.has_grad_bias());
  }
  ExpectSums(session, 2 * kTokens);  // Takes nothing away.
  v1::FetchSessionResponse fetched;
  ASSERT_TRUE(Fetch(session, 100, &fetched).ok());
  ExpectSums(fetched, 2 * kTokens);
  EXPECT_EQ(fetched.session().batches(), 2);
  EXPECT_EQ(fetched.session().num_tokens(), 2 * kTokens);
  EXPECT_EQ(fetched.grad_weight().spec().dtype(), v1::DATA_TYPE_FLOAT32);
  ExpectSums(session, 0);
  ASSERT_TRUE(Add(Batch(session, 3), &response).ok());
  EXPECT_EQ(response.session_batch().sequence(), 3);

  v1::ZeroSessionRequest zero;
  zero.set_session(session);
  zero.set_request_id(Id(101));
  v1::GradientSession zeroed;
  ASSERT_TRUE(Call(&Stub::ZeroSession, zero, &zeroed).ok());
  EXPECT_EQ(zeroed.batches(), 0);
  EXPECT_EQ(zeroed.sequence(), 3);
  ExpectSums(session, 0);
  // The answer got lost, and another micro-batch came in between.
  ASSERT_TRUE(Add(Batch(session, 4)).ok());
  ASSERT_TRUE(Call(&Stub::ZeroSession, zero, &zeroed).ok());
  ExpectSums(session, kTokens);
}

TEST_F(SessionTest, WithoutHiddenAndWithoutBias) {
  Start();
  v1::CreateSessionRequest create = CreateRequest();
  create.clear_bias();
  v1::GradientSession session;
  ASSERT_TRUE(Call(&Stub::CreateSession, create, &session).ok());
  EXPECT_FALSE(session.has_bias());
  v1::GradientRequest request = Batch(session.session(), 1);
  request.add_want(v1::WANT_WEIGHT);
  v1::GradientResponse response;
  ASSERT_TRUE(Add(request, &response).ok());
  EXPECT_TRUE(response.has_logp());
  EXPECT_FALSE(response.has_grad_hidden());
  v1::FetchSessionResponse fetched;
  ASSERT_TRUE(Fetch(session.session(), 0, &fetched).ok());
  EXPECT_FALSE(fetched.has_grad_bias());
  EXPECT_EQ(Read(fetched.grad_weight().handle()), std::vector<float>(kVocab * kHidden, kTokens));
}

TEST_F(SessionTest, AnIdAddsOnceAndIsAnsweredEachTime) {
  Start();
  const std::string session = Create();
  v1::GradientResponse first;
  v1::GradientResponse second;
  ASSERT_TRUE(Add(Batch(session, 1), &first).ok());
  ASSERT_TRUE(Add(Batch(session, 2)).ok());
  v1::FetchSessionResponse fetched;
  ASSERT_TRUE(Fetch(session, 100, &fetched).ok());
  // Also after a reset: it was in what has been fetched.
  ASSERT_TRUE(Add(Batch(session, 1), &second).ok());
  EXPECT_TRUE(second.session_batch().repeated());
  EXPECT_EQ(second.session_batch().sequence(), 1);
  EXPECT_EQ(second.grad_hidden().data(), first.grad_hidden().data());
  ExpectSums(session, 0);
}

// Of two calls with one id, both under way, the one that ends first adds.
TEST_F(SessionTest, AnIdAddsOnceWhereItIsSentAgainMeanwhile) {
  control_->takes_chunks = true;
  Start();
  const std::string session = Create();
  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  const auto slow = linear_logp_->StreamGradient(&context);
  std::vector<v1::StreamGradientRequest> messages = StreamedBatch(session, 1, kTokens);
  const std::string hidden = messages.back().data();
  messages.back().set_data(hidden.substr(0, 2 * 4 * kHidden));
  for (const auto& message : messages) ASSERT_TRUE(slow->Write(message));
  ASSERT_TRUE(Eventually([&] { return control_->open == 1; }));  // It has begun, with an id that is new.
  v1::GradientResponse fast;
  ASSERT_TRUE(Add(Batch(session, 1), &fast).ok());
  EXPECT_FALSE(fast.session_batch().repeated());
  v1::StreamGradientRequest rest = messages.back();
  rest.set_offset(rest.offset() + rest.data().size());
  rest.set_data(hidden.substr(2 * 4 * kHidden));
  ASSERT_TRUE(slow->Write(rest));
  slow->WritesDone();
  v1::StreamGradientResponse response;
  v1::StreamGradientDone done;
  while (slow->Read(&response)) {
    if (response.has_done()) done = response.done();
  }
  const grpc::Status status = slow->Finish();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(done.session_batch().repeated());
  EXPECT_EQ(done.session_batch().sequence(), fast.session_batch().sequence());
  ExpectSums(session, kTokens);
}

TEST_F(SessionTest, ARepeatedResetBringsWhatTheFirstTook) {
  Start();
  const std::string session = Create();
  ASSERT_TRUE(Add(Batch(session, 1)).ok());
  v1::FetchSessionResponse first;
  ASSERT_TRUE(Fetch(session, 100, &first).ok());
  ASSERT_TRUE(Add(Batch(session, 2)).ok());
  v1::FetchSessionResponse again;
  ASSERT_TRUE(Fetch(session, 100, &again).ok());
  EXPECT_EQ(again.grad_weight().handle(), first.grad_weight().handle());
  ExpectSums(again, kTokens);
  ExpectSums(session, kTokens);  // The second micro-batch is still there.

  grpc::ClientContext context;
  context.AddMetadata("x-principal", "ann");
  v1::DeleteTensorRequest request;
  request.set_handle(first.grad_bias().handle());
  v1::DeleteTensorResponse deleted;
  ASSERT_TRUE(tensors_->Delete(&context, request, &deleted).ok());
  v1::ErrorDetail detail;
  EXPECT_EQ(Fetch(session, 100, &again, &detail).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(detail.field(), "request_id");
}

TEST_F(SessionTest, OfAnotherPrincipalThereIsNone) {
  Start();
  const std::string session = Create();
  const auto expect_not_found = [](const grpc::Status& status, const v1::ErrorDetail& detail) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << status.error_message();
    EXPECT_EQ(detail.field(), "session");
  };
  v1::ErrorDetail detail;
  v1::GradientSession info;
  const auto named = [&](auto request) {
    request.set_session(session);
    return request;
  };
  expect_not_found(Add(Batch(session, 1), nullptr, &detail, "bob"), detail);
  expect_not_found(Call(&Stub::GetSession, named(v1::GetSessionRequest()), &info, &detail, "bob"), detail);
  expect_not_found(Call(&Stub::TouchSession, named(v1::TouchSessionRequest()), &info, &detail, "bob"), detail);
  v1::ZeroSessionRequest zero = named(v1::ZeroSessionRequest());
  zero.set_request_id(Id(1));
  expect_not_found(Call(&Stub::ZeroSession, zero, &info, &detail, "bob"), detail);
  v1::FetchSessionResponse fetched;
  expect_not_found(Call(&Stub::FetchSession, named(v1::FetchSessionRequest()), &fetched, &detail, "bob"), detail);
  v1::DeleteSessionResponse deleted;
  expect_not_found(Call(&Stub::DeleteSession, named(v1::DeleteSessionRequest()), &deleted, &detail, "bob"), detail);
  v1::ListSessionsResponse list;
  ASSERT_TRUE(Call(&Stub::ListSessions, v1::ListSessionsRequest(), &list, nullptr, "bob").ok());
  EXPECT_EQ(list.sessions_size(), 0);
  ASSERT_TRUE(Call(&Stub::ListSessions, v1::ListSessionsRequest(), &list).ok());
  ASSERT_EQ(list.sessions_size(), 1);
  EXPECT_EQ(list.sessions(0).session(), session);
  EXPECT_EQ(list.sessions(0).device(), "cpu");
  EXPECT_EQ(list.sessions(0).batches(), 0);
  ASSERT_TRUE(Call(&Stub::DeleteSession, named(v1::DeleteSessionRequest()), &deleted).ok());
  expect_not_found(Add(Batch(session, 1), nullptr, &detail), detail);
}

TEST_F(SessionTest, ListsPageByPage) {
  Start();
  std::set<std::string> created = {Create(), Create(), Create()};
  std::set<std::string> listed;
  v1::ListSessionsRequest request;
  request.set_page_size(2);
  v1::ListSessionsResponse page;
  do {
    ASSERT_TRUE(Call(&Stub::ListSessions, request, &page).ok());
    EXPECT_LE(page.sessions_size(), 2);
    for (const v1::GradientSession& session : page.sessions()) listed.insert(session.session());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(listed, created);
  v1::ErrorDetail detail;
  request.set_page_token("tensors/a");
  EXPECT_EQ(Call(&Stub::ListSessions, request, &page, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "page_token");
  request.clear_page_token();
  request.set_page_size(-1);
  EXPECT_EQ(Call(&Stub::ListSessions, request, &page, &detail).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(detail.field(), "page_size");
}

TEST_F(SessionTest, MicroBatchesAreRefusedForWhatIsWrongAndAddNothing) {
  Start();
  const std::string session = Create();
  struct Case {
    std::string name;
    std::function<void(v1::GradientRequest*)> change;
    std::string field;
  };
  const std::vector<Case> cases = {
      {"weight given", [](auto* r) { *r->mutable_inputs()->mutable_weight() = Unary().inputs().weight(); }, "weight"},
      {"bias given", [](auto* r) { *r->mutable_inputs()->mutable_bias() = Unary().inputs().bias(); }, "bias"},
      {"no upstream", [](auto* r) { r->mutable_inputs()->clear_grad_logp(); }, "grad_logp"},
      {"no hidden", [](auto* r) { r->mutable_inputs()->clear_hidden(); }, "hidden"},
      {"width",
       [](auto* r) {
         SetSpec(r->mutable_inputs()->mutable_hidden(), v1::DATA_TYPE_FLOAT32, {kTokens, kHidden - 1});
       },
       "hidden"},
      {"type",
       [](auto* r) {
         SetSpec(r->mutable_inputs()->mutable_hidden(), v1::DATA_TYPE_BFLOAT16, {kTokens, kHidden});
       },
       "hidden"},
      {"number of targets",
       [](auto* r) { SetSpec(r->mutable_inputs()->mutable_targets(), v1::DATA_TYPE_INT32, {kTokens + 1}); }, "targets"},
      {"target", [](auto* r) { r->mutable_inputs()->mutable_targets()->set_data(std::string(4 * kTokens, '\x7f')); },
       "targets"},
      {"device", [](auto* r) { r->mutable_options()->set_device("cuda:0"); }, "device"},
      {"variant", [](auto* r) { r->mutable_options()->set_variant("none"); }, "variant"},
      {"short id", [](auto* r) { r->mutable_session_batch()->set_batch_id("short"); }, "batch_id"},
  };
  for (const Case& test : cases) {
    v1::GradientRequest request = Batch(session, 1);
    test.change(&request);
    v1::ErrorDetail detail;
    const grpc::Status status = Add(request, nullptr, &detail);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << test.name << ": " << status.error_message();
    EXPECT_EQ(detail.field(), test.field) << test.name << ": " << status.error_message();
  }
  ExpectSums(session, 0);
  EXPECT_TRUE(Add(Batch(session, 1)).ok());
}

TEST_F(SessionTest, CreateIsRefusedForWhatIsWrong) {
  Start();
  struct Case {
    std::string name;
    std::function<void(v1::CreateSessionRequest*)> change;
    std::string field;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  };
  const std::vector<Case> cases = {
      {"no weight", [](auto* r) { r->clear_weight(); }, "weight"},
      {"no spec", [](auto* r) { r->mutable_weight()->clear_spec(); }, "weight"},
      {"rank", [](auto* r) { SetSpec(r->mutable_weight(), v1::DATA_TYPE_FLOAT32, {kVocab * kHidden}); }, "weight"},
      {"no width",
       [](auto* r) {
         SetSpec(r->mutable_weight(), v1::DATA_TYPE_FLOAT32, {kVocab, 0});
       },
       "weight"},
      {"type",
       [](auto* r) {
         SetSpec(r->mutable_weight(), v1::DATA_TYPE_INT32, {kVocab, kHidden});
       },
       "weight"},
      {"bytes", [](auto* r) { r->mutable_weight()->mutable_data()->pop_back(); }, "weight"},
      {"bias length", [](auto* r) { SetSpec(r->mutable_bias(), v1::DATA_TYPE_FLOAT32, {kVocab + 1}); }, "bias"},
      {"bias bytes", [](auto* r) { r->mutable_bias()->mutable_data()->pop_back(); }, "bias"},
      {"lease", [](auto* r) { r->set_lease_ms(-1); }, "lease_ms"},
      {"device", [](auto* r) { r->set_device("tpu"); }, "device"},
      {"handle", [](auto* r) { r->mutable_weight()->set_handle("tensors/none"); }, "weight.handle",
       grpc::StatusCode::NOT_FOUND},
  };
  for (const Case& test : cases) {
    v1::CreateSessionRequest request = CreateRequest();
    test.change(&request);
    v1::GradientSession session;
    v1::ErrorDetail detail;
    const grpc::Status status = Call(&Stub::CreateSession, request, &session, &detail);
    EXPECT_EQ(status.error_code(), test.code) << test.name << ": " << status.error_message();
    EXPECT_EQ(detail.field(), test.field) << test.name << ": " << status.error_message();
  }
  EXPECT_EQ(Info().tensor_store().used_bytes(), 0);
  EXPECT_EQ(Info().tensor_store().sessions(), 0);
}

TEST_F(SessionTest, BytesCountToTheOwnersShareUntilTheSessionEnds) {
  constexpr std::int64_t kSums = 4 * kVocab * kHidden + 4 * kVocab;
  ServerOptions options;
  options.max_stored_tensor_bytes = 1 << 20;
  options.max_stored_tensor_bytes_per_caller = (256 << 10) + 3 * kSums;
  Start(options);
  // By handle: the stored tensor's bytes are shared, and stay when it is deleted.
  v1::TensorInfo weight;
  ASSERT_TRUE(
      Put(GoodPut(v1::DATA_TYPE_FLOAT32, {kVocab, kHidden}, std::string(4 * kVocab * kHidden, '\0')), &weight, "ann")
          .ok());
  v1::CreateSessionRequest create = CreateRequest();
  create.mutable_weight()->set_handle(weight.handle());
  v1::GradientSession session;
  ASSERT_TRUE(Call(&Stub::CreateSession, create, &session).ok());
  EXPECT_EQ(session.size_bytes(), (256 << 10) + kSums + 4 * kVocab);  // The bias came inline.
  EXPECT_EQ(Info().tensor_store().used_bytes(), (256 << 10) + 2 * kSums);
  EXPECT_EQ(Info().tensor_store().sessions(), 1);
  v1::GradientSession another;
  EXPECT_EQ(Call(&Stub::CreateSession, CreateRequest(), &another).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Call(&Stub::CreateSession, CreateRequest(), &another, nullptr, "bob").ok());
  // A fetch takes of the share too, and one that doesn't fit changes nothing.
  ASSERT_TRUE(Add(Batch(session.session(), 1)).ok());
  v1::FetchSessionResponse fetched;
  ASSERT_TRUE(Fetch(session.session(), 0, &fetched).ok());
  v1::FetchSessionResponse refused;
  EXPECT_EQ(Fetch(session.session(), 100, &refused).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectSums(fetched, kTokens);
  v1::GetSessionRequest get;
  get.set_session(session.session());
  ASSERT_TRUE(Call(&Stub::GetSession, get, &session).ok());
  EXPECT_EQ(session.batches(), 1);
}

// Every micro-batch is sent twice, by different clients at once.
TEST_F(SessionTest, ManyClientsAddEachMicroBatchOnce) {
  for (const bool streamed : {false, true}) {
    kevald_.reset();
    control_->takes_chunks = streamed;
    Start();
    const std::string session = Create();
    constexpr int kClients = 4;
    constexpr int kBatches = 10;
    std::vector<std::thread> clients;
    for (int client = 0; client < 2 * kClients; ++client) {
      clients.emplace_back([&, client] {
        for (int i = 0; i < kBatches; ++i) {
          const int id = client % kClients * kBatches + i;
          grpc::ClientContext context;
          context.AddMetadata("x-principal", "ann");
          if (!streamed) {
            EXPECT_TRUE(Add(Batch(session, id)).ok());
            continue;
          }
          const auto stream = linear_logp_->StreamGradient(&context);
          for (const auto& message : StreamedBatch(session, id, kTokens)) {
            if (!stream->Write(message)) break;
          }
          stream->WritesDone();
          v1::StreamGradientResponse response;
          while (stream->Read(&response)) {
          }
          const grpc::Status status = stream->Finish();
          EXPECT_TRUE(status.ok()) << status.error_message();
        }
      });
    }
    for (std::thread& client : clients) client.join();
    v1::FetchSessionResponse fetched;
    ASSERT_TRUE(Fetch(session, 0, &fetched).ok());
    EXPECT_EQ(fetched.session().batches(), kClients * kBatches);
    EXPECT_EQ(fetched.session().sequence(), kClients * kBatches);
    ExpectSums(fetched, kClients * kBatches * kTokens);
  }
}

}  // namespace
}  // namespace keval::server
