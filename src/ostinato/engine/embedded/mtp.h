/* Drafts of an MTP layer in DeepSeek-V3 form: included by kernel.c.
 *
 *     state of position i ──┐
 *                           ├─ norms, join ─► one layer ─► norm, head ─► the token of position i + 2
 *     token of position i+1 ┘                     │
 *                                                 └─ the state of the row after it, whose token was drafted
 *
 * States of the model are kept, so that nothing is computed while nothing is drafted: the keys and values of the
 * positions since are made up for by the next draft. A token is drawn from the draft's own distribution, with the
 * settings of the request and the uniform number that the model will draw with, so that it is as often the same as
 * the two distributions lie over each other.
 */

/* Some rows on their way through the MTP layer: the state of a position and the id of the token after it. */
typedef struct { int64_t n, slots[ROWS], positions[ROWS], ids[ROWS]; const float *states[ROWS]; } Ahead;

/* Compute the rows; the output of a slot's last one goes to `ahead`. */
static void look_ahead(const Engine *e, const float *const *model, const float *const *mtp, Ahead *a) {
    int64_t hidden = e->s.hidden, width = hidden + e->c;
    for (int64_t r = 0; r < a->n; r++) {
        float *row = e->joined + r * width;
        if (a->positions[r]) /* the token after the first one counts as none, as everywhere with these layers */
            normalise(model[EMBEDDING] + a->ids[r] * e->c, mtp[MTP_ENORM], e->c, hidden, e->eps, row);
        else memset(row, 0, e->c * 4);
        normalise(a->states[r], mtp[MTP_HNORM], e->c, hidden, e->eps, row + hidden);
    }
    product(e->joined, width, a->n, mtp[MTP_JOIN], 2 * hidden, hidden, e->x, e->c);
    block(e, e->s.layers, mtp, a->n, a->slots, a->positions);
    for (int64_t r = 0; r < a->n; r++) memcpy(e->ahead + a->slots[r] * e->c, e->x + r * e->c, e->c * 4);
    a->n = 0;
}

static void add_row(const Engine *e, const float *const *model, const float *const *mtp, const Table *t, Ahead *a,
                    int64_t slot, int64_t at, const float *state) {
    a->slots[a->n] = slot, a->positions[a->n] = at, a->states[a->n] = state;
    a->ids[a->n++] = t->tokens[slot * e->s.max_len + at + 1];
    if (a->n == ROWS) look_ahead(e, model, mtp, a);
}

/* Draw the token after the drafted ones, of which each of these slots has `depth`, from the outputs in `ahead`. */
static void guess(const Engine *e, const float *const *model, const float *const *mtp, const Table *t, int64_t depth,
                  int64_t n, const int64_t *slots) {
    int64_t v = padded(e->s.vocab, PANEL);
    for (int64_t first = 0; first < n; first += ROWS) {
        int64_t rows = n - first < ROWS ? n - first : ROWS;
        for (int64_t r = 0; r < rows; r++)
            normalise(e->ahead + slots[first + r] * e->c, mtp[MTP_NORM], e->c, e->s.hidden, e->eps, e->h + r * e->c);
        product(e->h, e->c, rows, model[HEAD], e->s.hidden, e->s.vocab, e->logits, v);
        for (int64_t r = 0; r < rows; r++) {
            int64_t slot = slots[first + r], length = t->length[slot];
            float unused;
            t->length[slot] = length + depth; /* penalties count what was drafted */
            int64_t token = draw(e, t, slot, e->logits + r * v, &unused);
            t->length[slot] = length, t->tokens[slot * e->s.max_len + length + depth] = (int32_t)token;
            if (t->stops[slot * e->s.vocab + token]) {
                e->drafts->drafted -= e->drafts->count[slot] - depth - 1;
                e->drafts->count[slot] = e->drafts->left[slot] = depth + 1;
            }
        }
    }
}

/* Draft for slots of which each misses its last token alone, as many tokens as pay. */
static void foresee(const Engine *e, const float *const *model, const float *const *mtp, const Table *t, int64_t most,
                    int64_t n, const int64_t *slots) {
    Drafts *d = e->drafts;
    int64_t found = 0, some[n];
    Ahead a = {.n = 0};
    for (int64_t i = 0; i < n; i++) {
        int64_t length = t->length[slots[i]], room = length > 1 ? t->limit[slots[i]] - length - 1 : 0;
        double survives = 1;
        for (int64_t j = 0; j < most && j < room; j++) {
            survives *= rate(d, slots[i], j);
            d->candidates[found++] = (Candidate){survives, slots[i]};
        }
    }
    select_drafts(d, found, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = slots[i], last = t->length[slot] - 2;
        if (!d->count[slot]) continue;
        d->late |= last - d->seen[slot] > 2 * most;
        for (int64_t at = d->seen[slot] < last ? d->seen[slot] : last; at <= last; at++)
            add_row(e, model, mtp, t, &a, slot, at, e->kept + (slot * e->s.max_len + at) * e->c);
        d->seen[slot] = last + 1;
    }
    for (int64_t depth = 0; found; depth++) {
        if (a.n) look_ahead(e, model, mtp, &a);
        found = 0;
        for (int64_t i = 0; i < n; i++)
            if (d->count[slots[i]] > depth) some[found++] = slots[i];
        guess(e, model, mtp, t, depth, found, some);
        for (int64_t i = 0; i < found; i++)
            if (d->count[some[i]] > depth + 1)
                add_row(e, model, mtp, t, &a, some[i], t->length[some[i]] - 1 + depth, e->ahead + some[i] * e->c);
    }
}
