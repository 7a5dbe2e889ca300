/* The forward pass of the decoder and the choice of tokens, for rows of (slot, position, token id).
 *
 * A row is one new token. Prefill and decode are the same call with other rows. Every number of a row is
 * computed by the same operations in the same order, so to the bit results do not depend on the other rows of
 * the batch. The layout makes that cheap: weights are packed in panels of PANEL outputs, so that a lane of a
 * vector belongs to one output and sums run over the inputs one after another; keys are kept in blocks of LANES
 * positions, so that a lane belongs to one position.
 *
 * Widths are padded to whole panels, with zeros everywhere. `kernel.py` compiles this file for the processor it
 * runs on; it uses GCC's vector extensions, which clang has too, instead of instructions.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define TALL 8
#elif defined(__AVX__)
#define LANES 8
#define TALL 4
#else
#define LANES 4
#define TALL 4
#endif
#define PANEL (2 * LANES)
#define ROWS 64 /* computed together through all layers */
#define AHEAD 48 /* inputs whose weights are fetched in advance: 1.4 times as fast for four and eight rows */
#define GROUP 16 /* queries that read keys and values together */
#define TILE 4096 /* floats of keys or values that they read at a time, which stay in the first cache */
#define ALONE __attribute__((noinline)) /* merged into its caller, a loop may lose its fused multiply-adds */
#define LARGE (1 << 20) /* multiplications that are worth a team of threads */

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef float vec_at __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(LANES * 4)));

static inline vec load(const float *p) { return *(const vec_at *)p; }
static inline void store(float *p, vec v) { *(vec_at *)p = v; }
static inline vec all(float x) { return x - (vec){0}; }
static inline vec choose(ints mask, vec a, vec b) { return (vec)(((ints)a & mask) | ((ints)b & ~mask)); }
static inline vec larger(vec a, vec b) { return choose(a > b, a, b); }
static int64_t padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static inline float total(vec v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

/* e^x by e^x = 2^n e^r, |r| <= ln 2 / 2, and the Taylor polynomial of degree 7 for e^r; 0 below -87. */
static inline vec exponential(vec x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    ints tiny = x < all(-87.0f);
    x = choose(tiny, all(0), x);
    vec n = (x * 1.44269504f + shift) - shift;
    vec r = x - n * 0.693145752f - n * 1.42860677e-6f;
    vec p = all(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    ints power = __builtin_convertvector(n, ints) << 23;
    return choose(tiny, all(0), (vec)((ints)p + power));
}

/* The sizes that `native.py` passes: all int64. */
typedef struct {
    int64_t vocab, hidden, layers, heads, kv_heads, dim, dense, experts, top, expert, shared, norm_top;
    int64_t normed, biased; /* queries and keys are normalised; q, k and v have a bias */
    int64_t slots, max_len, drafts; /* drafts: the most drafted tokens of a slot in one step */
    int64_t foresees; /* there may be an MTP layer, whose keys and values come after those of the layers */
} Sizes;

/* The sampling settings of one slot, as `slots.py` has them. */
typedef struct { double temperature, top_p, top_k, min_p, presence, frequency, repetition; } Settings;

/* The arrays of a SlotTable: [slots, max_len] the first five (routes with [layers, top] more), [slots, vocab]
 * the stops, [slots] the others. */
typedef struct {
    int32_t *tokens, *versions;
    float *logprobs, *uniform;
    uint16_t *routes;
    uint8_t *stops;
    int64_t *prompt, *length, *limit, *computed;
    Settings *settings;
} Table;

#include "drafts.h"

/* Packed weights: of each layer eleven pointers in this order, then the three of the model; those of the MTP layer
 * are a list of its own, the eleven of a layer and then four. */
enum { NORM1, QKV, BIAS, GAINS, OUT, NORM2, ROUTER, GATE_UP, DOWN, SHARED_GATE_UP, SHARED_DOWN, PER_LAYER };
enum { EMBEDDING, NORM, HEAD };
enum { MTP_ENORM = PER_LAYER, MTP_HNORM, MTP_JOIN, MTP_NORM };

typedef struct {
    Sizes s;
    float eps;
    int64_t c, qkv, heads, wide, tall, capacity; /* padded widths; tall: rows of the experts' scratch */
    const float *cos, *sin;                      /* [max_len, dim]; sin has the sign of rotate-half in it */
    float *keys, *values;                        /* [layers, slots, kv_heads, ...] */
    int64_t k_size, v_size, v_row;               /* floats of one head of one slot; of one position */
    float *x, *h, *y, *part, *attended, *gates, *inner, *scores, *mixed, *logits;
    float *kept, *ahead, *joined; /* for MTP: [slots, max_len, c] normed states of the last layer, [slots, c] the newest
                                   * outputs of the MTP layer, [ROWS, hidden + c] its inputs */
    float *weight;                               /* [ROWS, top] of the chosen experts */
    int32_t *chosen, *counts;                    /* counts: [vocab], zero between two uses */
    Drafts *drafts;                              /* NULL where nothing is drafted */
} Engine;

/* ---- weights ---------------------------------------------------------------------------------------- */

int64_t packed_size(int64_t outputs, int64_t inputs) { return padded(outputs, PANEL) * inputs; }
int64_t padded_width(int64_t n) { return padded(n, PANEL); }

/* [outputs, inputs] to panels [outputs / PANEL, inputs, PANEL]. */
void pack(const float *w, int64_t outputs, int64_t inputs, float *to) {
    for (int64_t n = 0; n < padded(outputs, PANEL); n += PANEL)
        for (int64_t lane = 0; lane < PANEL; lane++)
            for (int64_t k = 0; k < inputs; k++)
                to[n * inputs + k * PANEL + lane] = n + lane < outputs ? w[(n + lane) * inputs + k] : 0;
}

/* ---- products --------------------------------------------------------------------------------------- */

/* `M` rows by `P` panels: y[r, n] = sum over k of x[r, k] w[k, n]. */
#define PRODUCT(NAME, M, P)                                                                                  \
    static void NAME(const float *x, int64_t ldx, const float *w, int64_t inputs, float *y, int64_t ldy) {   \
        vec a[M][2 * P];                                                                                     \
        memset(a, 0, sizeof a);                                                                              \
        for (int64_t k = 0; k < inputs; k++)                                                                 \
            for (int p = 0; p < P; p++) {                                                                    \
                __builtin_prefetch(w + (p * inputs + k + AHEAD) * PANEL, 0, 2);                              \
                __builtin_prefetch(w + (p * inputs + k + AHEAD) * PANEL + LANES, 0, 2);                      \
                vec b0 = load(w + (p * inputs + k) * PANEL), b1 = load(w + (p * inputs + k) * PANEL + LANES); \
                for (int m = 0; m < M; m++) {                                                                \
                    vec s = all(x[m * ldx + k]);                                                             \
                    a[m][2 * p] += s * b0;                                                                   \
                    a[m][2 * p + 1] += s * b1;                                                               \
                }                                                                                            \
            }                                                                                                \
        for (int m = 0; m < M; m++)                                                                          \
            for (int i = 0; i < 2 * P; i++) store(y + m * ldy + i * LANES, a[m][i]);                         \
    }
PRODUCT(tall_panel, TALL, 1)
PRODUCT(four_panel, 4, 1)
PRODUCT(two_panels, 2, 2)
PRODUCT(two_panel, 2, 1)
PRODUCT(one_panels, 1, 4)
PRODUCT(one_panel, 1, 1)

/* The first `panels` of a product: y [rows, panels * PANEL] = x [rows, inputs] times packed w. */
static void some_panels(const float *x, int64_t ldx, int64_t rows, const float *w, int64_t inputs,
                        int64_t panels, float *y, int64_t ldy) {
    int64_t size = inputs * PANEL, m = 0, p;
    for (p = 0; p < panels && rows >= 4; p++) {
        for (m = 0; m + TALL <= rows; m += TALL)
            tall_panel(x + m * ldx, ldx, w + p * size, inputs, y + m * ldy + p * PANEL, ldy);
        for (; m + 4 <= rows; m += 4)
            four_panel(x + m * ldx, ldx, w + p * size, inputs, y + m * ldy + p * PANEL, ldy);
    }
    for (; m + 2 <= rows; m += 2) {
        for (p = 0; p + 2 <= panels; p += 2)
            two_panels(x + m * ldx, ldx, w + p * size, inputs, y + m * ldy + p * PANEL, ldy);
        for (; p < panels; p++)
            two_panel(x + m * ldx, ldx, w + p * size, inputs, y + m * ldy + p * PANEL, ldy);
    }
    for (; m < rows; m++) {
        for (p = 0; p + 4 <= panels; p += 4)
            one_panels(x + m * ldx, ldx, w + p * size, inputs, y + m * ldy + p * PANEL, ldy);
        for (; p < panels; p++)
            one_panel(x + m * ldx, ldx, w + p * size, inputs, y + m * ldy + p * PANEL, ldy);
    }
}

/* The threads that compute together: OMP_NUM_THREADS, or every core. An output is computed by one of them, so
 * their number changes no bit. */
static int threads(void) {
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static int thread(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* y [rows, padded outputs] = x [rows, inputs] times packed w. */
static void product(const float *x, int64_t ldx, int64_t rows, const float *w, int64_t inputs,
                    int64_t outputs, float *y, int64_t ldy) {
    int64_t panels = padded(outputs, PANEL) / PANEL, team = threads();
    if (team == 1 || rows * inputs * outputs < LARGE) {
        some_panels(x, ldx, rows, w, inputs, panels, y, ldy);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(team)
    for (int64_t t = 0; t < team; t++) {
        int64_t from = panels * t / team, to = panels * (t + 1) / team;
        some_panels(x, ldx, rows, w + from * inputs * PANEL, inputs, to - from, y + from * PANEL, ldy);
    }
}

static void normalise(const float *x, const float *gain, int64_t width, int64_t real, float eps, float *y) {
    vec sum = all(0);
    for (int64_t i = 0; i < width; i += LANES) sum += load(x + i) * load(x + i);
    vec scale = all(1 / sqrtf(total(sum) / real + eps));
    for (int64_t i = 0; i < width; i += LANES) store(y + i, load(x + i) * scale * load(gain + i));
}

/* ---- attention -------------------------------------------------------------------------------------- */

/* Normalise one head of a query or key, unless there is no gain, and rotate it by its position. */
static void turn(const float *x, const float *gain, const float *cos, const float *sin, int64_t dim,
                 float eps, float scale, float *y) {
    float part[4] = {0}, half[dim];
    if (gain) {
        for (int64_t i = 0; i < dim; i++) part[i & 3] += x[i] * x[i];
        float by = 1 / sqrtf(((part[0] + part[1]) + (part[2] + part[3])) / dim + eps);
        for (int64_t i = 0; i < dim; i++) half[i] = x[i] * by * gain[i];
    } else
        memcpy(half, x, dim * 4);
    for (int64_t i = 0; i < dim; i++) {
        int64_t other = i < dim / 2 ? i + dim / 2 : i - dim / 2;
        y[i] = (half[i] * cos[i] + half[other] * sin[i]) * scale;
    }
}

/* `M` queries by the keys of blocks `from` to `to`: scores, -infinity beyond each query's last position. Up to
 * three blocks too many: the room is there. */
#define SCORES(NAME, M)                                                                                      \
    static ALONE void NAME(const float *const *q, const int64_t *last, const float *keys, int64_t dim,       \
                     int64_t from, int64_t to, float *s, int64_t lds, vec *top) {                            \
        ints lane;                                                                                           \
        for (int i = 0; i < LANES; i++) lane[i] = i;                                                         \
        for (int64_t b = from; b < to; b += 4) {                                                             \
            const float *k = keys + b * dim * LANES;                                                         \
            vec a[M][4];                                                                                     \
            memset(a, 0, sizeof a);                                                                          \
            for (int64_t d = 0; d < dim; d++) {                                                              \
                vec k0 = load(k + d * LANES), k1 = load(k + (dim + d) * LANES);                              \
                vec k2 = load(k + (2 * dim + d) * LANES), k3 = load(k + (3 * dim + d) * LANES);              \
                for (int m = 0; m < M; m++) {                                                                \
                    vec x = all(q[m][d]);                                                                    \
                    a[m][0] += x * k0;                                                                       \
                    a[m][1] += x * k1;                                                                       \
                    a[m][2] += x * k2;                                                                       \
                    a[m][3] += x * k3;                                                                       \
                }                                                                                            \
            }                                                                                                \
            for (int m = 0; m < M; m++)                                                                      \
                for (int i = 0; i < 4; i++) {                                                                \
                    ints seen = lane + (int32_t)((b + i) * LANES) <= (int32_t)last[m];                       \
                    vec y = choose(seen, a[m][i], all(-INFINITY));                                           \
                    top[m] = larger(top[m], y);                                                              \
                    store(s + m * lds + (b + i) * LANES, y);                                                 \
                }                                                                                            \
        }                                                                                                    \
    }
SCORES(two_scores, 2)
SCORES(one_scores, 1)

/* Four queries by the values of positions `from` to `to`, in `C` vectors of dimensions: sums [4, 4, row], where
 * the sum k takes the positions t with t % 4 = k, one after another. */
#define VALUES(NAME, C)                                                                                      \
    static ALONE void NAME(const float *s, int64_t lds, const float *values, int64_t row, int64_t from,      \
                           int64_t to, float *sums) {                                                        \
        for (int64_t k = 0; k < 4; k++) {                                                                    \
            vec a[4][C];                                                                                     \
            for (int m = 0; m < 4; m++)                                                                      \
                for (int c = 0; c < C; c++) a[m][c] = load(sums + (m * 4 + k) * row + c * LANES);            \
            for (int64_t t = from + k; t < to; t += 4) {                                                     \
                vec v[C];                                                                                    \
                for (int c = 0; c < C; c++) v[c] = load(values + t * row + c * LANES);                       \
                for (int m = 0; m < 4; m++)                                                                  \
                    for (int c = 0; c < C; c++) a[m][c] += s[m * lds + t] * v[c];                            \
            }                                                                                                \
            for (int m = 0; m < 4; m++)                                                                      \
                for (int c = 0; c < C; c++) store(sums + (m * 4 + k) * row + c * LANES, a[m][c]);            \
        }                                                                                                    \
    }
VALUES(two_vectors, 2)
VALUES(one_vector, 1)

static void four_values(const float *s, int64_t lds, const float *values, int64_t row, int64_t from, int64_t to,
                        float *sums) {
    int64_t i = 0;
    for (; i + 2 * LANES <= row; i += 2 * LANES) two_vectors(s, lds, values + i, row, from, to, sums + i);
    for (; i < row; i += LANES) one_vector(s, lds, values + i, row, from, to, sums + i);
}

/* The same of one query, the four sums at once. */
static ALONE void one_value(const float *s, const float *values, int64_t row, int64_t from, int64_t to,
                            float *sums) {
    for (int64_t i = 0; i < row; i += LANES) {
        vec a[4];
        int64_t t = from;
        for (int k = 0; k < 4; k++) a[k] = load(sums + k * row + i);
        for (; t + 4 <= to; t += 4)
            for (int k = 0; k < 4; k++) a[k] += s[t + k] * load(values + (t + k) * row + i);
        for (; t < to; t++) a[t & 3] += s[t] * load(values + t * row + i);
        for (int k = 0; k < 4; k++) store(sums + k * row + i, a[k]);
    }
}

/* Of `n` queries of one slot that share keys and values: the softmax of each over positions 0 … last, then the
 * mean of the values. Keys and values come tile by tile, so that a long context is read once for all of them. */
static void attend(const Engine *e, int64_t n, const float *const *q, const int64_t *last, const float *keys,
                   const float *values, float *const *out) {
    int64_t dim = e->s.dim, row = e->v_row, lds = e->capacity, end = 0, tile = padded(TILE / row, 4 * LANES);
    float *s = e->scores + thread() * GROUP * lds, sums[GROUP][4][row];
    float by[GROUP];
    vec top[GROUP];
    memset(sums, 0, n * sizeof *sums);
    for (int64_t j = 0; j < n; j++) top[j] = all(-INFINITY), end = last[j] >= end ? last[j] + 1 : end;
    for (int64_t from = 0; from < end; from += tile)
        for (int64_t j = 0, m; j < n; j += m) {
            m = j + 1 < n ? 2 : 1;
            int64_t most = m == 2 && last[j + 1] > last[j] ? last[j + 1] : last[j];
            int64_t to = most / LANES + 1 < (from + tile) / LANES ? most / LANES + 1 : (from + tile) / LANES;
            if (m == 2) two_scores(q + j, last + j, keys, dim, from / LANES, to, s + j * lds, lds, top + j);
            else one_scores(q + j, last + j, keys, dim, from / LANES, to, s + j * lds, lds, top + j);
        }
    for (int64_t j = 0; j < n; j++) {
        float highest = top[j][0];
        for (int i = 1; i < LANES; i++) highest = top[j][i] > highest ? top[j][i] : highest;
        vec sum = all(0);
        for (int64_t b = 0; b <= last[j] / LANES; b++) {
            vec p = exponential(load(s + j * lds + b * LANES) - highest);
            store(s + j * lds + b * LANES, p);
            sum += p;
        }
        by[j] = 1 / total(sum);
        int64_t after = (last[j] / LANES + 1) * LANES; /* what others see beyond it counts for nothing */
        if (after < end) memset(s + j * lds + after, 0, (end - after) * 4);
    }
    for (int64_t from = 0; from < end; from += tile)
        for (int64_t j = 0, m; j < n; j += m) {
            m = j + 4 <= n ? 4 : 1;
            int64_t to = from + tile < end ? from + tile : end;
            if (m == 4) four_values(s + j * lds, lds, values, row, from, to, sums[j][0]);
            else one_value(s + j * lds, values, row, from, to, sums[j][0]);
        }
    for (int64_t j = 0; j < n; j++)
        for (int64_t d = 0; d < dim; d++)
            out[j][d] = ((sums[j][0][d] + sums[j][1][d]) + (sums[j][2][d] + sums[j][3][d])) * by[j];
}

/* From the products of one row: store its key and value, and leave its rotated queries in their place. */
static void remember(const Engine *e, int64_t layer, int64_t slot, int64_t at, const float *gains,
                     float *qkv) {
    int64_t dim = e->s.dim, heads = e->s.heads, kv = e->s.kv_heads;
    const float *cos = e->cos + at * dim, *sin = e->sin + at * dim;
    float key[dim];
    for (int64_t h = 0; h < heads; h++)
        turn(qkv + h * dim, gains ? gains + h * dim : NULL, cos, sin, dim, e->eps, 1 / sqrtf((float)dim),
             qkv + h * dim);
    for (int64_t h = 0; h < kv; h++) {
        int64_t head = (layer * e->s.slots + slot) * kv + h;
        float *k = e->keys + head * e->k_size + at / LANES * dim * LANES + at % LANES;
        turn(qkv + (heads + h) * dim, gains ? gains + (heads + h) * dim : NULL, cos, sin, dim, e->eps, 1, key);
        for (int64_t d = 0; d < dim; d++) k[d * LANES] = key[d];
        memcpy(e->values + head * e->v_size + at * e->v_row, qkv + (heads + kv + h) * dim, dim * 4);
    }
}

static void attention(const Engine *e, int64_t layer, const float *const *w, int64_t rows,
                      const int64_t *slots, const int64_t *positions) {
    int64_t dim = e->s.dim, heads = e->s.heads, kv = e->s.kv_heads, width = heads * dim, seen = 0;
    for (int64_t r = 0; r < rows; r++) seen += positions[r];
    product(e->h, e->c, rows, w[QKV], e->s.hidden, (heads + 2 * kv) * dim, e->part, e->qkv);
    for (int64_t r = 0; r < rows && e->s.biased; r++)
        for (int64_t i = 0; i < e->qkv; i += LANES) {
            float *at = e->part + r * e->qkv + i;
            store(at, load(at) + load(w[BIAS] + i));
        }
    for (int64_t r = 0; r < rows; r++)
        remember(e, layer, slots[r], positions[r], e->s.normed ? w[GAINS] : NULL, e->part + r * e->qkv);
    int64_t sharing = heads / kv, starts[ROWS + 1], groups = 0; /* rows of one slot, as many as fit a group */
    for (int64_t r = 0; r < rows; r++)
        if (!r || slots[r] != slots[r - 1] || (r + 1 - starts[groups - 1]) * sharing > GROUP) starts[groups++] = r;
    starts[groups] = rows;
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads()) if (seen * width > LARGE)
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < kv; k++) {
            int64_t head = (layer * e->s.slots + slots[starts[g]]) * kv + k, n = 0, last[GROUP];
            const float *q[GROUP], *keys = e->keys + head * e->k_size, *values = e->values + head * e->v_size;
            float *out[GROUP];
            for (int64_t r = starts[g]; r < starts[g + 1]; r++)
                for (int64_t h = k * sharing; h < (k + 1) * sharing; h++) {
                    q[n] = e->part + r * e->qkv + h * dim, out[n] = e->attended + r * width + h * dim;
                    last[n++] = positions[r];
                    if (n < GROUP && (r + 1 < starts[g + 1] || h + 1 < (k + 1) * sharing)) continue;
                    attend(e, n, q, last, keys, values, out);
                    n = 0;
                }
        }
    product(e->attended, width, rows, w[OUT], width, e->s.hidden, e->y, e->c);
}

/* ---- feed-forward ----------------------------------------------------------------------------------- */

/* y = down(silu(gate(x)) * up(x)); gate and up are packed one after the other. */
static void gated(const Engine *e, const float *x, int64_t rows, const float *gate_up, const float *down,
                  int64_t width, float *y) {
    int64_t wide = padded(width, PANEL);
    product(x, e->c, rows, gate_up, e->s.hidden, 2 * wide, e->gates, 2 * wide);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < wide; i += LANES) {
            vec g = load(e->gates + r * 2 * wide + i), u = load(e->gates + r * 2 * wide + wide + i);
            store(e->inner + r * wide + i, g / (1.0f + exponential(-g)) * u);
        }
    product(e->inner, wide, rows, down, width, e->s.hidden, y, e->c);
}

/* The `top` likeliest experts of one row, best first, and their weights. */
static void choose_experts(const Engine *e, float *logits, int32_t *chosen, float *weight) {
    int64_t n = e->s.experts, top = e->s.top;
    float highest = logits[0], sum = 0, kept = 0;
    for (int64_t i = 1; i < n; i++) highest = logits[i] > highest ? logits[i] : highest;
    for (int64_t i = 0; i < n; i++) sum += logits[i] = expf(logits[i] - highest);
    for (int64_t j = 0; j < top; j++) {
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
        chosen[j] = (int32_t)best;
        weight[j] = logits[best] / sum;
        kept += weight[j];
        logits[best] = -1;
    }
    for (int64_t j = 0; j < top && e->s.norm_top; j++) weight[j] /= kept;
}

static void experts(const Engine *e, const float *const *w, int64_t rows) {
    int64_t top = e->s.top, c = e->c, wide = padded(e->s.expert, PANEL), list[ROWS * top];
    int64_t up = 2 * wide * e->s.hidden, down = c * e->s.expert;
    product(e->h, c, rows, w[ROUTER], e->s.hidden, e->s.experts, e->part, e->wide);
    for (int64_t r = 0; r < rows; r++)
        choose_experts(e, e->part + r * e->wide, e->chosen + r * top, e->weight + r * top);
    for (int64_t x = 0; x < e->s.experts; x++) {
        int64_t n = 0;
        for (int64_t i = 0; i < rows * top; i++)
            if (e->chosen[i] == x) {
                memcpy(e->part + n * c, e->h + i / top * c, c * 4);
                list[n++] = i;
            }
        gated(e, e->part, n, w[GATE_UP] + x * up, w[DOWN] + x * down, e->s.expert, e->part);
        for (int64_t i = 0; i < n; i++) memcpy(e->mixed + list[i] * c, e->part + i * c, c * 4);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i += LANES) {
            vec y = all(0);
            for (int64_t j = 0; j < top; j++) y += e->weight[r * top + j] * load(e->mixed + (r * top + j) * c + i);
            store(e->y + r * c + i, y);
        }
}

static void add(const Engine *e, int64_t rows, const float *y) {
    for (int64_t i = 0; i < rows * e->c; i += LANES) store(e->x + i, load(e->x + i) + load(y + i));
}

static void norm_rows(const Engine *e, int64_t rows, const float *gain) {
    for (int64_t r = 0; r < rows; r++)
        normalise(e->x + r * e->c, gain, e->c, e->s.hidden, e->eps, e->h + r * e->c);
}

/* ---- what Python calls ------------------------------------------------------------------------------ */

/* The rows in x through one layer. */
static void block(const Engine *e, int64_t l, const float *const *w, int64_t rows, const int64_t *slots,
                  const int64_t *positions) {
    norm_rows(e, rows, w[NORM1]);
    attention(e, l, w, rows, slots, positions);
    add(e, rows, e->y);
    norm_rows(e, rows, w[NORM2]);
    if (e->s.experts) {
        experts(e, w, rows);
        if (e->s.shared) {
            add(e, rows, e->y);
            gated(e, e->h, rows, w[SHARED_GATE_UP], w[SHARED_DOWN], e->s.shared, e->y);
        }
    } else
        gated(e, e->h, rows, w[GATE_UP], w[DOWN], e->s.dense, e->y);
    add(e, rows, e->y);
}

/* Some rows through all layers: h has the final norm of each. routes: [rows, layers, top]. */
static void layers(const Engine *e, const float *const *w, int64_t rows, const int64_t *slots,
                   const int64_t *positions, const int64_t *ids, uint16_t *routes) {
    const float *const *model = w + e->s.layers * PER_LAYER;
    for (int64_t r = 0; r < rows; r++) memcpy(e->x + r * e->c, model[EMBEDDING] + ids[r] * e->c, e->c * 4);
    for (int64_t l = 0; l < e->s.layers; l++, w += PER_LAYER) {
        block(e, l, w, rows, slots, positions);
        for (int64_t r = 0; r < rows && e->s.experts; r++)
            for (int64_t j = 0; j < e->s.top; j++)
                routes[(r * e->s.layers + l) * e->s.top + j] = (uint16_t)e->chosen[r * e->s.top + j];
    }
    norm_rows(e, rows, model[NORM]);
    for (int64_t r = 0; r < rows && e->s.foresees; r++)
        memcpy(e->kept + (slots[r] * e->s.max_len + positions[r]) * e->c, e->h + r * e->c, e->c * 4);
}

/* Penalise what the prompt (repetition alone) and the completion of a slot hold. */
static void penalise(const Engine *e, const Table *t, int64_t slot, float *logits) {
    const Settings *s = t->settings + slot;
    const int32_t *row = t->tokens + slot * e->s.max_len;
    const int32_t prompted = 1 << 30; /* above every count: a row is shorter */
    for (int64_t i = 0; i < t->length[slot]; i++)
        if (i < t->prompt[slot]) e->counts[row[i]] |= prompted;
        else e->counts[row[i]]++;
    for (int64_t i = 0; i < t->length[slot]; i++) {
        int32_t *count = e->counts + row[i], sampled = *count & (prompted - 1);
        float *logit = logits + row[i];
        if (!*count) continue; /* an earlier occurrence was it */
        *logit = (float)(*logit > 0 ? *logit / s->repetition : *logit * s->repetition);
        if (sampled) *logit = (float)(*logit - sampled * s->frequency - s->presence);
        *count = 0;
    }
}

/* Of the weights above `bound`: their number, and their sum. */
static int64_t above(const float *p, int64_t end, float bound, double *sum) {
    ints count = {0};
    *sum = 0;
    for (int64_t i = 0; i < end;) {
        vec part = all(0); /* short sums in single precision, so that the whole is nearly exact */
        for (int64_t stop = i + 64 * LANES < end ? i + 64 * LANES : end; i < stop; i += LANES) {
            vec q = load(p + i);
            ints over = q > all(bound);
            count -= over;
            part += choose(over, q, all(0));
        }
        *sum += total(part);
    }
    int64_t number = 0;
    for (int i = 0; i < LANES; i++) number += count[i];
    return number;
}

/* The least weight in [0, 1] that top_k and top_p leave: fewer than `most` are heavier, with a sum below `mass`.
 * Positive floats are ordered as their bits are, so the search goes by bits. Of equal weights all stay or none. */
static float least(const float *p, int64_t end, double most, double mass) {
    union { uint32_t bits; float value; } low = {.value = 0}, high = {.value = 1}, middle;
    double sum;
    while (low.bits < high.bits) {
        middle.bits = low.bits + (high.bits - low.bits) / 2;
        if (above(p, end, middle.value, &sum) < most && sum < mass) high = middle;
        else low.bits = middle.bits + 1;
    }
    return high.value;
}

static void drop_below(float *p, int64_t end, float bound) {
    for (int64_t i = 0; i < end; i++) p[i] = p[i] < bound ? 0 : p[i];
}

/* Set to zero what min_p, then top_k, then top_p cut; the likeliest token has the weight 1. */
static void cut(const Settings *s, float *p, int64_t end) {
    double sum;
    drop_below(p, end, (float)s->min_p);
    if (s->top_k > 0) drop_below(p, end, least(p, end, s->top_k, INFINITY));
    if (s->top_p == 1) return;
    above(p, end, 0, &sum);
    drop_below(p, end, least(p, end, INFINITY, s->top_p * sum));
}

/* The next token of a slot, where the cumulative probability passes its uniform number, or the likeliest; its
 * log-probability. */
static int64_t draw(const Engine *e, const Table *t, int64_t slot, float *logits, float *logprob) {
    const Settings *s = t->settings + slot;
    int64_t v = e->s.vocab, end = padded(v, LANES), best = 0, at;
    float temperature = (float)s->temperature, uniform = t->uniform[slot * e->s.max_len + t->length[slot]];
    float scale = temperature > 0 ? 1 / temperature : 1, p[end], sums[end / LANES];
    vec top = all(-INFINITY);
    if (s->repetition != 1 || s->presence || s->frequency) penalise(e, t, slot, logits);
    for (int64_t i = v; i < end; i++) logits[i] = -INFINITY;
    for (int64_t i = 0; i < end; i += LANES) top = larger(top, load(logits + i));
    float highest = top[0];
    for (int i = 1; i < LANES; i++) highest = top[i] > highest ? top[i] : highest;
    double sum = 0, seen = 0;
    for (int64_t i = 0; i < end; i += LANES) {
        vec q = exponential((load(logits + i) - highest) * scale);
        store(p + i, q);
        sum += sums[i / LANES] = total(q);
    }
    if (s->min_p > 0 || s->top_k > 0 || s->top_p < 1) {
        cut(s, p, end);
        sum = 0;
        for (int64_t i = 0; i < end; i += LANES) sum += sums[i / LANES] = total(load(p + i));
    }
    if (temperature > 0) {
        double target = (double)uniform * sum;
        int64_t block = 0;
        while (block < end / LANES - 1 && seen + sums[block] <= target) seen += sums[block++];
        for (at = best = block * LANES; at < v; at++) { /* rounding may pass the block: then its last token */
            if (p[at] > 0) best = at;
            if ((seen += p[at]) > target && p[at] > 0) break;
        }
    } else
        while (logits[best] < highest) best++;
    *logprob = (float)((double)((logits[best] - highest) * scale) - log(sum));
    return best;
}

#include "mtp.h"

/* Some rows on their way through the layers together. */
typedef struct {
    int64_t n, slots[ROWS], positions[ROWS], ids[ROWS];
    uint8_t sampled[ROWS]; /* a token is sampled after it */
    uint16_t *routes;      /* [ROWS, layers, top] */
} Batch;

/* Whether the last token of a slot ends its sequence. */
static int ends(const Engine *e, const Table *t, int64_t slot) {
    int64_t length = t->length[slot], last = t->tokens[slot * e->s.max_len + length - 1];
    return t->stops[slot * e->s.vocab + last] || length >= t->limit[slot];
}

/* Append the token after the last one of a slot. Where one was drafted in its place and is another, or the
 * sequence ends, the rows of the slot that follow are those of no sequence.
 *
 * That is rejection sampling for a draft that is certain: its token x is accepted with probability p(x), and else
 * one of the others is drawn, each with its share of what is left, since both come of one draw from p. */
static void append(const Engine *e, const Table *t, int64_t slot, float *logits) {
    int64_t length = t->length[slot], at = slot * e->s.max_len + length;
    int32_t drafted = t->tokens[at];
    t->tokens[at] = (int32_t)draw(e, t, slot, logits, t->logprobs + at);
    t->length[slot] = length + 1;
    if (!e->drafts) return;
    if (e->drafts->left[slot] > 0) judge(e->drafts, slot, t->tokens[at] == drafted);
    if (ends(e, t, slot)) e->drafts->left[slot] = -1;
}

/* Compute the batch, and sample into the table after the rows that are the last of their slots so far. */
static void flush(const Engine *e, const float *const *w, const Table *t, Batch *b) {
    int64_t v = padded(e->s.vocab, PANEL), width = e->s.layers * e->s.top, wanted = 0, which[ROWS];
    layers(e, w, b->n, b->slots, b->positions, b->ids, b->routes);
    for (int64_t r = 0; r < b->n; r++) {
        int64_t at = b->slots[r] * e->s.max_len + b->positions[r];
        if (e->s.experts) memcpy(t->routes + at * width, b->routes + r * width, width * sizeof *t->routes);
        if (!b->sampled[r]) continue;
        memmove(e->h + wanted * e->c, e->h + r * e->c, e->c * 4);
        which[wanted++] = b->slots[r];
    }
    product(e->h, e->c, wanted, w[e->s.layers * PER_LAYER + HEAD], e->s.hidden, e->s.vocab, e->logits, v);
    for (int64_t i = 0; i < wanted; i++) {
        int64_t slot = which[i];
        if (!e->drafts || e->drafts->left[slot] >= 0) append(e, t, slot, e->logits + i * v);
    }
    b->n = 0;
}

/* Compute the tokens of a slot below position `end`, which is not its last one; nothing is sampled. */
void fill(const Engine *e, const float *const *w, const Table *t, int64_t slot, int64_t end) {
    uint16_t routes[ROWS * e->s.layers * (e->s.top ? e->s.top : 1)];
    Batch b = {.n = 0, .routes = routes};
    for (int64_t at = t->computed[slot]; at < end; at++) {
        b.slots[b.n] = slot, b.positions[b.n] = at, b.ids[b.n] = t->tokens[slot * e->s.max_len + at];
        b.sampled[b.n++] = 0;
        if (b.n == ROWS || at + 1 == end) flush(e, w, t, &b);
    }
    t->computed[slot] = end;
    if (e->drafts) note_time(e->drafts, 0, 0);
}

/* Compute the missing tokens of these slots and sample one token for each, and those after it that are as drafted:
 * at most `most` drafted tokens a slot, by the MTP layer unless `mtp` is NULL. The slots that are finished by them are written to `finished`, and their
 * number is returned. */
int64_t advance(const Engine *e, const float *const *w, const float *const *mtp, const Table *t, int64_t n,
                const int64_t *slots, int64_t version, int64_t most, int64_t *finished) {
    int64_t max_len = e->s.max_len, done = 0, rows = 0, prompts = 0, first = 0;
    uint16_t routes[ROWS * e->s.layers * (e->s.top ? e->s.top : 1)];
    Batch b = {.n = 0, .routes = routes};
    Drafts *d = e->drafts;
    if (d) d->late = 0;
    for (int64_t i = 0; i < n && d; i++) {
        int64_t slot = slots[i];
        d->count[slot] = d->left[slot] = d->run[slot] = 0;
        prompts += t->length[slot] - t->computed[slot] > 1;
        if (t->length[slot] == t->prompt[slot]) d->accepted[slot] = d->expected[slot] = 0, first++;
    }
    if (d && !prompts && most) {
        if (mtp) foresee(e, w + e->s.layers * PER_LAYER, mtp, t, most, n, slots);
        else draft(d, t, &e->s, most, n, slots);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = slots[i], length = t->length[slot], end = length + (d ? d->count[slot] : 0);
        for (int64_t at = length; at <= end; at++) t->versions[slot * max_len + at] = (int32_t)version;
        for (int64_t at = t->computed[slot]; at < end; at++, rows++) {
            b.slots[b.n] = slot, b.positions[b.n] = at, b.ids[b.n] = t->tokens[slot * max_len + at];
            b.sampled[b.n++] = at + 1 >= length;
            if (b.n == ROWS) flush(e, w, t, &b);
        }
    }
    if (b.n) flush(e, w, t, &b);
    for (int64_t i = 0; i < n; i++) {
        t->computed[slots[i]] = t->length[slots[i]] - 1;
        if (ends(e, t, slots[i])) finished[done++] = slots[i];
    }
    if (d) note_time(d, n, prompts || first || d->late ? 0 : rows);
    return done;
}

/* Write the numbers of tokens that were drafted and that were accepted. */
void drafted(const Engine *e, int64_t *to) {
    if (e->drafts) to[0] = e->drafts->drafted, to[1] = e->drafts->hit;
}

/* Let `target` go on from the first `length` positions of `source`, which may be itself. */
void copy_prefix(const Engine *e, int64_t source, int64_t target, int64_t length) {
    int64_t keys = padded(length, LANES) * e->s.dim * 4, values = length * e->v_row * 4, row = e->s.max_len * e->c;
    if (e->s.foresees) { /* what the MTP layer made of the last position depends on the token after it */
        int64_t seen = e->drafts->seen[source];
        e->drafts->seen[target] = seen < length ? seen : length ? length - 1 : 0;
    }
    if (source == target) return;
    if (e->s.foresees) memcpy(e->kept + target * row, e->kept + source * row, length * e->c * 4);
    for (int64_t l = 0; l < e->s.layers + e->s.foresees; l++)
        for (int64_t h = 0; h < e->s.kv_heads; h++) {
            int64_t from = (l * e->s.slots + source) * e->s.kv_heads + h;
            int64_t to = (l * e->s.slots + target) * e->s.kv_heads + h;
            memcpy(e->keys + to * e->k_size, e->keys + from * e->k_size, keys);
            memcpy(e->values + to * e->v_size, e->values + from * e->v_size, values);
        }
}

void discard(Engine *e) {
    if (!e) return;
    float *owned[] = {e->keys, e->values, e->x,     e->h,      e->y,     e->part,  e->attended,
                      e->gates, e->inner, e->scores, e->mixed, e->logits, e->weight,
                      e->kept,  e->ahead, e->joined};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    free(e->chosen), free(e->counts), discard_drafts(e->drafts);
    free(e);
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Return NULL when there is no memory. The tables stay the caller's; pages of the cache are allocated as they are used. */
Engine *create(const Sizes *s, float eps, const float *cos, const float *sin) {
    Engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    int64_t top = most(s->top, 1), mlp = most(most(s->dense, s->expert), s->shared);
    e->s = *s, e->eps = eps, e->cos = cos, e->sin = sin;
    e->c = padded(s->hidden, PANEL), e->qkv = padded((s->heads + 2 * s->kv_heads) * s->dim, PANEL);
    e->wide = padded(most(s->experts, 1), PANEL), e->tall = ROWS * top;
    e->capacity = padded(s->max_len, 4 * LANES), e->v_row = padded(s->dim, LANES);
    e->k_size = e->capacity * s->dim, e->v_size = e->capacity * e->v_row;
    int64_t blocks = (s->layers + s->foresees) * s->slots * s->kv_heads, inner = padded(mlp, PANEL);
    int64_t part = most(most(ROWS * e->qkv, e->tall * e->c), ROWS * e->wide);
    struct { float **at; int64_t size; } wanted[] = {
        {&e->keys, blocks * e->k_size}, {&e->values, blocks * e->v_size}, {&e->x, ROWS * e->c},
        {&e->h, ROWS * e->c}, {&e->y, ROWS * e->c}, {&e->part, part},
        {&e->attended, ROWS * s->heads * s->dim}, {&e->gates, e->tall * 2 * inner},
        {&e->inner, e->tall * inner}, {&e->scores, threads() * GROUP * e->capacity}, {&e->mixed, e->tall * e->c},
        {&e->logits, ROWS * padded(s->vocab, PANEL)}, {&e->weight, e->tall},
        {&e->kept, s->foresees * s->slots * s->max_len * e->c}, {&e->ahead, s->foresees * s->slots * e->c},
        {&e->joined, s->foresees * ROWS * (s->hidden + e->c)},
    };
    int failed = !(e->chosen = calloc(e->tall, sizeof *e->chosen));
    failed |= !(e->counts = calloc(s->vocab, sizeof *e->counts));
    failed |= s->drafts && !(e->drafts = create_drafts(s->slots, s->drafts));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        failed |= !(*wanted[i].at = calloc(most(wanted[i].size, 1), sizeof(float)));
    if (failed) discard(e), e = NULL;
    return e;
}
