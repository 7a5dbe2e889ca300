/* What is drafted, and how much of it pays: included by kernel.c.
 *
 * The draft of a sequence is what followed the longest run of its last tokens where that run stood before, most
 * recently. All drafts of a step are verified in that step, by rows of their own. How many rows pay is counted:
 * the likelier a drafted token is to be accepted, the earlier it gets a row, as long as the tokens expected of a
 * step, divided by the time of a step with so many rows, grow. A token is drawn as if nothing had been drafted,
 * so none of this changes what is sampled, only when.
 */
#include <time.h>

#define LONGEST 32    /* tokens of a run: longer ones foretell no better */
#define KINDS 6       /* of runs, by length: 1, 2, 3-4, 5-8, 9-16, longer */
#define DEPTHS 4      /* of the MTP layer's tokens: the first, second and third after the last one, and all others */
#define MEMORY 0.998  /* weight of the earlier trials of a kind after one more */
#define USUAL 4       /* trials for which a sequence counts as usual, beside its own */
#define GAIN 1.03     /* that drafting promises at least */
#define NEWEST 0.2    /* weight of the newest time of a step */
#define FORGET 0.9998 /* what a time still counts each time that other numbers of rows were chosen */
#define PLAIN 64      /* one in so many drafts is not verified, so that the time of a plain step stays known */
#ifndef ALWAYS
#define ALWAYS 0      /* 1 verifies every draft, for proofs and measurements */
#endif

typedef struct { double survives; int64_t slot; } Candidate;

typedef struct {
    int64_t *count, *left, *run;    /* [slots]: drafted; not judged yet, -1 after a rejection; length of the run, 0
                                     * where the MTP layer drafts */
    int64_t *seen, late;            /* [slots]: positions the MTP layer has keys of; whether many were missing */
    double *accepted, *expected;    /* [slots] of this request, and by the rates of all requests */
    double tries[KINDS + DEPTHS], hits[KINDS + DEPTHS]; /* by the run before, or by depth */
    double *cost, *hope, ended;     /* by rows: seconds of a step, 0 where unknown, and what they still count, so
                                     * that all are tried again; end of the last step */
    int64_t before, steps;          /* slots of the last step, 0 unless it was like others; drafts considered */
    int64_t drafted, hit;           /* tokens */
    Candidate *candidates;          /* [slots, most] */
} Drafts;

/* Seconds. CPU time would leave out what other programs take, and asking for it takes a hundredth of a small step. */
static double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* The length of the longest run that ends a row and stands in it before; `*next` is the position after that. */
static int64_t longest_run(const int32_t *row, int64_t length, int64_t *next) {
    int64_t best = 0, last = length - 1;
    for (int64_t at = last - 1; at >= best && best < LONGEST; at--) {
        int64_t run = 0;
        if (row[at] != row[last] || row[at - best] != row[last - best]) continue;
        while (run < LONGEST && run <= at && row[at - run] == row[last - run]) run++;
        if (run > best) best = run, *next = at + 1;
    }
    return best;
}

/* The kind of the drafted token number `at` of a slot. */
static int kind(const Drafts *d, int64_t slot, int64_t at) {
    int k = 0;
    if (!d->run[slot]) return KINDS + (at < DEPTHS ? (int)at : DEPTHS - 1);
    while (k < KINDS - 1 && d->run[slot] + at > 1 << k) k++;
    return k;
}

/* The probability that a token is accepted, if those drafted before it are. */
static double rate(const Drafts *d, int64_t slot, int64_t at) {
    double all = d->hits[kind(d, slot, at)] / d->tries[kind(d, slot, at)];
    double own = all * (d->accepted[slot] + USUAL) / (d->expected[slot] + USUAL);
    return own < 1 ? own : 1;
}

/* Count a drafted token that was accepted or rejected. */
static void judge(Drafts *d, int64_t slot, int accepted) {
    int k = kind(d, slot, d->count[slot] - d->left[slot]);
    d->expected[slot] += d->hits[k] / d->tries[k], d->accepted[slot] += accepted;
    d->tries[k] = d->tries[k] * MEMORY + 1, d->hits[k] = d->hits[k] * MEMORY + accepted;
    d->hit += accepted, d->left[slot] = accepted ? d->left[slot] - 1 : -1;
}

static int likelier(const void *a, const void *b) {
    double x = ((const Candidate *)a)->survives, y = ((const Candidate *)b)->survives;
    return (x < y) - (x > y);
}

/* Of `n` candidates for rows beside those of `slots` slots, likeliest first: how many to verify. */
static int64_t worthwhile(Drafts *d, const Candidate *candidates, int64_t n, int64_t slots) {
    int64_t known = slots, chosen = 0;
    if (ALWAYS) return n;
    if (!d->cost[slots] || ++d->steps % PLAIN == 0) return 0;
    double tokens = slots, best = GAIN * tokens / d->cost[slots];
    for (int64_t k = 1; k <= n; k++) {
        int64_t rows = slots + k, pass = known > TALL ? known : TALL;
        if (d->cost[rows]) known = pass = rows;
        /* Where no time is known, rows cost nothing up to what one pass over the weights computes. */
        double cost = d->cost[known] * d->hope[known] * (rows > pass ? (double)rows / pass : 1);
        tokens += candidates[k - 1].survives;
        if (tokens / cost > best) best = tokens / cost, chosen = k;
    }
    for (int64_t k = 1; k <= n; k++) d->hope[slots + k] = k == chosen ? 1 : d->hope[slots + k] * FORGET;
    return chosen;
}

/* Give rows to the likeliest of the candidates, as far as they pay. */
static void select_drafts(Drafts *d, int64_t found, int64_t slots) {
    if (slots > 1) qsort(d->candidates, found, sizeof *d->candidates, likelier);
    int64_t chosen = worthwhile(d, d->candidates, found, slots);
    for (int64_t k = 0; k < chosen; k++) d->left[d->candidates[k].slot] = ++d->count[d->candidates[k].slot];
    d->drafted += chosen;
}

/* Draft for slots of which each misses its last token alone: the drafted tokens follow it in its row. */
static void draft(Drafts *d, const Table *t, const Sizes *s, int64_t most, int64_t n, const int64_t *slots) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = slots[i], length = t->length[slot], next = 0, room = t->limit[slot] - length - 1;
        int32_t *row = t->tokens + slot * s->max_len;
        double survives = 1;
        d->run[slot] = room > 0 ? longest_run(row, length, &next) : 0;
        for (int64_t j = 0; j < most && j < room && d->run[slot]; j++) {
            row[length + j] = row[next + j]; /* it may be one that was drafted just now */
            survives *= rate(d, slot, j);
            d->candidates[found++] = (Candidate){survives, slot};
            if (t->stops[slot * s->vocab + row[length + j]]) break;
        }
    }
    select_drafts(d, found, n);
}

/* Note the time of a step of `n` slots with so many rows; 0 rows are a step unlike others. */
static void note_time(Drafts *d, int64_t n, int64_t rows) {
    double now = clock_seconds(), took = now - d->ended, *cost = d->cost + rows;
    if (rows && d->before == n) {
        double most = *cost ? 2 * *cost : d->cost[n] ? d->cost[n] * rows / n : took;
        took = took < most ? took : most;
        *cost = *cost ? *cost + NEWEST * (took - *cost) : took;
    }
    d->ended = now, d->before = rows ? n : 0;
}

static void discard_drafts(Drafts *d) {
    if (!d) return;
    free(d->count), free(d->left), free(d->run), free(d->seen), free(d->accepted), free(d->expected), free(d->cost), free(d->hope);
    free(d->candidates), free(d);
}

static Drafts *create_drafts(int64_t slots, int64_t most) {
    Drafts *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    for (int k = 0; k < KINDS + DEPTHS; k++) d->tries[k] = 2, d->hits[k] = 1;
    d->count = calloc(slots, 8), d->left = calloc(slots, 8), d->run = calloc(slots, 8), d->seen = calloc(slots, 8);
    d->accepted = calloc(slots, 8), d->expected = calloc(slots, 8);
    int64_t rows = slots * (most + 1) + 1;
    d->cost = calloc(rows, 8), d->hope = calloc(rows, 8), d->candidates = calloc(slots * most, sizeof *d->candidates);
    for (int64_t i = 0; i < rows && d->hope; i++) d->hope[i] = 1;
    if (d->count && d->left && d->run && d->seen && d->accepted && d->expected && d->cost && d->hope && d->candidates)
        return d;
    discard_drafts(d);
    return NULL;
}
