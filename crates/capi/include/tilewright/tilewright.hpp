/* tilewright.hpp: runs compiled models from C++17 and newer. Header-only, over tilewright.h.
 *
 * Handles are owned by objects that move and free themselves. What fails throws tilewright::error, which has the status and the problems.
 */
#ifndef TILEWRIGHT_TILEWRIGHT_HPP
#define TILEWRIGHT_TILEWRIGHT_HPP

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tilewright/tilewright.h>

namespace tilewright {

/* One thing that is wrong with a tensor or, from the compiler, with an operator: see tw_problem. */
struct problem {
  std::int32_t kind = 0;
  std::int32_t axis = -1;
  std::int64_t expected = -1;
  std::int64_t got = -1;
  std::string name;
  std::string text;
};

class error : public std::runtime_error {
public:
  /* What went wrong last on this thread. */
  explicit error(tw_status status) : std::runtime_error(tw_last_error()), status_(status) {
    for (std::size_t i = 0; i < tw_problem_count(); ++i) {
      tw_problem one = {sizeof one, 0, 0, 0, 0, nullptr, nullptr};
      if (tw_problem_at(i, &one) == TW_OK) problems_.push_back({one.kind, one.axis, one.expected, one.got, one.name, one.text});
    }
  }
  tw_status status() const noexcept { return status_; }
  const char *name() const noexcept { return tw_status_name(status_); }
  const std::vector<problem> &problems() const noexcept { return problems_; }

private:
  tw_status status_;
  std::vector<problem> problems_;
};

inline void check(tw_status status) {
  if (status != TW_OK) throw error(status);
}

/* The statement that what is loaded is from where one would run programs from. */
enum class trust : tw_trust { origin = TW_TRUST_ORIGIN };

/* The element type of a C++ type. */
template <class T> struct dtype;
template <> struct dtype<bool> { static constexpr DLDataType value = {kDLBool, 8, 1}; };
template <> struct dtype<std::int8_t> { static constexpr DLDataType value = {kDLInt, 8, 1}; };
template <> struct dtype<std::int16_t> { static constexpr DLDataType value = {kDLInt, 16, 1}; };
template <> struct dtype<std::int32_t> { static constexpr DLDataType value = {kDLInt, 32, 1}; };
template <> struct dtype<std::int64_t> { static constexpr DLDataType value = {kDLInt, 64, 1}; };
template <> struct dtype<std::uint8_t> { static constexpr DLDataType value = {kDLUInt, 8, 1}; };
template <> struct dtype<std::uint16_t> { static constexpr DLDataType value = {kDLUInt, 16, 1}; };
template <> struct dtype<std::uint32_t> { static constexpr DLDataType value = {kDLUInt, 32, 1}; };
template <> struct dtype<std::uint64_t> { static constexpr DLDataType value = {kDLUInt, 64, 1}; };
template <> struct dtype<float> { static constexpr DLDataType value = {kDLFloat, 32, 1}; };
template <> struct dtype<double> { static constexpr DLDataType value = {kDLFloat, 64, 1}; };

/* Memory of the caller's as a dense tensor, for an input or an output of a run. */
class view {
public:
  /* To be read. */
  template <class T>
  view(const T *data, std::vector<std::int64_t> shape)
      : shape_(std::move(shape)),
        tensor_(tw_dense(const_cast<T *>(data), dtype<T>::value.code, dtype<T>::value.bits,
                         static_cast<std::int32_t>(shape_.size()), nullptr)) {}
  /* The extents move with it. */
  DLTensor get() noexcept {
    tensor_.shape = shape_.data();
    return tensor_;
  }

private:
  std::vector<std::int64_t> shape_;
  DLTensor tensor_;
};

/* An output of a run, which owns its elements. */
class tensor {
public:
  tensor() noexcept = default;
  explicit tensor(DLManagedTensorVersioned *owned) noexcept : owned_(owned) {}
  tensor(tensor &&other) noexcept : owned_(std::exchange(other.owned_, nullptr)) {}
  tensor &operator=(tensor &&other) noexcept {
    std::swap(owned_, other.owned_);
    return *this;
  }
  ~tensor() { tw_tensor_free(owned_); }

  const DLTensor &dl() const noexcept { return owned_->dl_tensor; }
  std::vector<std::int64_t> shape() const { return {dl().shape, dl().shape + dl().ndim}; }
  std::size_t size() const noexcept {
    std::size_t n = 1;
    for (std::int32_t axis = 0; axis < dl().ndim; ++axis) n *= static_cast<std::size_t>(dl().shape[axis]);
    return n;
  }
  /* The elements; throws where they are of another type. */
  template <class T> T *data() const {
    const DLDataType found = dl().dtype, wanted = dtype<T>::value;
    if (found.code != wanted.code || found.bits != wanted.bits) throw std::invalid_argument("the tensor's elements are of another type");
    return static_cast<T *>(dl().data);
  }
  template <class T> T *begin() const { return data<T>(); }
  template <class T> T *end() const { return data<T>() + size(); }
  /* The tensor for another library, which calls its deleter. */
  DLManagedTensorVersioned *release() noexcept { return std::exchange(owned_, nullptr); }

private:
  DLManagedTensorVersioned *owned_ = nullptr;
};

/* An extent of an input or output. */
struct extent {
  std::int64_t value;        /* -1 where it is open */
  std::string name;          /* of an open one; may be empty */
  std::int64_t least, most;  /* what an open one may be; no bound where `most` is -1 */
  std::int64_t step;
};

/* An input or output of a model. */
struct spec {
  std::string name;
  std::string type;
  std::int32_t kind;
  std::int32_t rank;
  DLDataType dtype;
  std::vector<extent> extents;
};

/* How a model is loaded and run: the fields of tw_options, with memory and threads of C++. What is named here must outlive models, sessions
 * and tensors. */
class options {
public:
  options &threads(std::uint32_t n) noexcept { raw_.n_threads = n; return *this; }
  options &sessions(std::uint32_t n) noexcept { raw_.n_sessions = n; return *this; }
  options &memory_limit(std::uint64_t bytes) noexcept { raw_.memory_limit = bytes; return *this; }
  options &seed(std::uint64_t seed) noexcept { raw_.seed = seed; return *this; }
  options &verify_weights(bool verify) noexcept { raw_.verify_weights = verify ? 1 : 0; return *this; }
  /* Sessions and outputs are in this memory, which may be asked by any thread. */
  options &memory(std::pmr::memory_resource *resource) noexcept {
    allocator_ = {sizeof allocator_, resource,
                  [](void *ctx, std::size_t bytes, std::size_t align) -> void * {
                    try {
                      return static_cast<std::pmr::memory_resource *>(ctx)->allocate(bytes, align);
                    } catch (...) { /* The run tells that there is no memory. */
                      return nullptr;
                    }
                  },
                  [](void *ctx, void *start, std::size_t bytes, std::size_t align) {
                    static_cast<std::pmr::memory_resource *>(ctx)->deallocate(start, bytes, align);
                  }};
    return *this;
  }
  /* Kernels run on an executor of the caller's: its parallel_for(n, f) calls f(i) for each i below n, and does not throw. */
  template <class Executor> options &threads(Executor *executor, std::size_t count) noexcept {
    threads_ = {sizeof threads_, executor, count, [](void *ctx, std::size_t n, tw_task task, void *task_ctx) {
                  static_cast<Executor *>(ctx)->parallel_for(n, [task, task_ctx](std::size_t i) { task(task_ctx, i); });
                }};
    return *this;
  }
  /* For C; valid while this lives and does not move. */
  const tw_options *get() noexcept {
    raw_.allocator = allocator_.size != 0 ? &allocator_ : nullptr;
    raw_.threads = threads_.size != 0 ? &threads_ : nullptr;
    return &raw_;
  }

private:
  tw_options raw_ = {sizeof(tw_options), 0, 0, 0, 0, 0, 0, nullptr, nullptr};
  tw_allocator allocator_ = {0, nullptr, nullptr, nullptr};
  tw_threads threads_ = {0, nullptr, 0, nullptr};
};

/* Owns a handle of C. */
template <class H, tw_status (*Free)(H *)> class handle {
public:
  handle() noexcept = default;
  explicit handle(H *raw) noexcept : raw_(raw) {}
  handle(handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  handle &operator=(handle &&other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~handle() {
    if (raw_ != nullptr) Free(raw_);
  }
  H *get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != nullptr; }

private:
  H *raw_ = nullptr;
};

/* A request to stop runs. */
class cancel : public handle<tw_cancel, tw_cancel_free> {
public:
  cancel() : handle(made()) {}
  void request() const { check(tw_cancel_request(get())); }

private:
  static tw_cancel *made() {
    tw_cancel *raw = nullptr;
    check(tw_cancel_new(&raw));
    return raw;
  }
};

/* Named inputs of a run, in any order. */
using named = std::vector<std::pair<std::string, view>>;

/* Inputs of a run as C takes them. */
class inputs {
public:
  explicit inputs(named &given) {
    for (auto &one : given) {
      names_.push_back(one.first.c_str());
      tensors_.push_back(one.second.get());
    }
  }
  explicit inputs(std::vector<view> &given) {
    for (auto &one : given) tensors_.push_back(one.get());
  }
  std::size_t size() const noexcept { return tensors_.size(); }
  const char *const *names() const noexcept { return names_.empty() ? nullptr : names_.data(); }
  const DLTensor *tensors() const noexcept { return tensors_.data(); }

private:
  std::vector<const char *> names_;
  std::vector<DLTensor> tensors_;
};

inline std::vector<tensor> owned(const std::vector<DLManagedTensorVersioned *> &raw) {
  std::vector<tensor> made;
  made.reserve(raw.size());
  for (auto *one : raw) made.emplace_back(one);
  return made;
}

/* A loaded model, which any number of threads run at once. */
class model : public handle<tw_model, tw_model_free> {
public:
  using handle::handle;
  model() noexcept = default;
  model(const std::string &path, trust word, options how = {}) : handle(loaded(path, word, how)) {}
  /* Of bytes in memory, which are copied. */
  model(const void *bytes, std::size_t n, trust word, options how = {}) : handle(loaded(bytes, n, word, how)) {}

  std::vector<spec> inputs() const { return specs(tw_model_input_count, tw_model_input); }
  std::vector<spec> outputs() const { return specs(tw_model_output_count, tw_model_output); }

  /* Runs on inputs by name, or in the model's order, and gives the outputs in its order. */
  std::vector<tensor> run(named given, const cancel *stop = nullptr) const { return run(tilewright::inputs(given), stop); }
  std::vector<tensor> run(std::vector<view> given, const cancel *stop = nullptr) const {
    return run(tilewright::inputs(given), stop);
  }

private:
  static tw_model *loaded(const std::string &path, trust word, options &how) {
    tw_model *raw = nullptr;
    check(tw_model_load(path.c_str(), static_cast<tw_trust>(word), how.get(), &raw));
    return raw;
  }
  static tw_model *loaded(const void *bytes, std::size_t n, trust word, options &how) {
    tw_model *raw = nullptr;
    check(tw_model_load_bytes(bytes, n, nullptr, nullptr, static_cast<tw_trust>(word), how.get(), &raw));
    return raw;
  }
  std::vector<tensor> run(const tilewright::inputs &given, const cancel *stop) const {
    std::size_t n = 0;
    check(tw_model_output_count(get(), &n));
    std::vector<DLManagedTensorVersioned *> raw(n);
    check(tw_model_run(get(), given.size(), given.names(), given.tensors(), stop != nullptr ? stop->get() : nullptr, n, raw.data()));
    return owned(raw);
  }
  std::vector<spec> specs(tw_status (*count)(tw_model *, std::size_t *), tw_status (*look)(tw_model *, std::size_t, tw_spec *)) const {
    std::size_t n = 0;
    check(count(get(), &n));
    std::vector<spec> all;
    for (std::size_t i = 0; i < n; ++i) {
      tw_spec one = {sizeof one, nullptr, nullptr, nullptr, 0, 0, {0, 0, 0}};
      check(look(get(), i, &one));
      spec made = {one.name, one.type, one.kind, one.rank, one.dtype, {}};
      for (std::int32_t axis = 0; axis < one.rank; ++axis) {
        const tw_extent &of = one.extents[axis];
        made.extents.push_back({of.extent, of.name, of.least, of.most, of.step});
      }
      all.push_back(std::move(made));
    }
    return all;
  }
};

/* Runs one after the other, on memory of its own. */
class session : public handle<tw_session, tw_session_free> {
public:
  explicit session(const model &of) : handle(made(of)) {}
  void seed(std::uint64_t seed) const { check(tw_session_set_seed(get(), seed)); }
  void stop_by(const cancel *stop) const { check(tw_session_set_cancel(get(), stop != nullptr ? stop->get() : nullptr)); }
  std::uint64_t memory() const {
    std::uint64_t bytes = 0;
    check(tw_session_memory(get(), &bytes));
    return bytes;
  }
  std::vector<tensor> run(named given, std::size_t n_outputs) const { return run(inputs(given), n_outputs); }
  std::vector<tensor> run(std::vector<view> given, std::size_t n_outputs) const { return run(inputs(given), n_outputs); }
  /* Writes outputs where the views say. */
  void run_into(std::vector<view> &given, std::vector<view> &results) const {
    const inputs from(given), to(results);
    check(tw_session_run_into(get(), from.size(), nullptr, from.tensors(), to.size(), to.tensors()));
  }

private:
  static tw_session *made(const model &of) {
    tw_session *raw = nullptr;
    check(tw_session_new(of.get(), &raw));
    return raw;
  }
  std::vector<tensor> run(const inputs &given, std::size_t n_outputs) const {
    std::vector<DLManagedTensorVersioned *> raw(n_outputs);
    check(tw_session_run(get(), given.size(), given.names(), given.tensors(), n_outputs, raw.data()));
    return owned(raw);
  }
};

} // namespace tilewright

#endif /* TILEWRIGHT_TILEWRIGHT_HPP */
