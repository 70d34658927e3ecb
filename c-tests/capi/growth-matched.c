/* Two processes over the matching transport, for as long as it takes to see whether something grows.
 *
 *     growth-matched PROVIDER short|million
 */
#include "matching.h"

#include "growth.h"

enum { ROUNDS = 50, LONGEST = 100000 };

static unsigned char mine[LONGEST], room[ROUNDS][LONGEST];

/* Each process sends and receives in three ways, probes, and gives a receive up. */
static long batch(void)
{
    static const size_t sizes[] = {1, 64, 100, 4000, 8, 20000, 64, 300};
    static struct ended sent[ROUNDS], received[ROUNDS];
    static long number;
    struct ended given_up, taken;
    long operations = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = round % 25 == 0 ? LONGEST : sizes[round % 8];
        receive(round % 2 ? match.to : anybody, CONTEXT, round, room[round], length, &received[round]);
        send_to(match.to, CONTEXT, round, mine, length, round % 5 ? 0 : HAWSER_SYNCHRONOUS, &sent[round]);
        operations += 2;
    }
    for (int round = 0; round < ROUNDS; round++) {
        SENT(sent[round]);
        UNTIL(received[round].count == 1);
        IS(0, received[round].status);
    }
    for (int round = 0; round < ROUNDS; round++, number++) {
        hawser_envelope envelope = {.size = sizeof envelope};
        hawser_message message;
        hawser_request request;
        size_t length = sizes[number % 8];
        /* A long one is over when it is received: who waits for that in both processes waits for ever. */
        if (length <= 4000) IS(0, match.table->send(match.module, match.to, CONTEXT + 1, TAG, mine, length, 0));
        else send_to(match.to, CONTEXT + 1, TAG, mine, length, 0, &sent[0]);
        for (int32_t code = HAWSER_ERR_NOT_FOUND; code != 0;) {
            code = match.table->improbe(match.module, anybody, CONTEXT + 1, TAG, &envelope, &message);
            CHECK(code == 0 || code == HAWSER_ERR_NOT_FOUND);
            if (code != 0) sched_yield();
        }
        CHECK(envelope.length == length);
        memset(&taken, 0, sizeof taken);
        IS(0, match.table->imrecv(match.module, message, room[0], length, over, &taken, &request));
        UNTIL(taken.count == 1);
        IS(0, taken.status);
        if (length > 4000) SENT(sent[0]);
        IS(HAWSER_ERR_NOT_FOUND, match.table->iprobe(match.module, anybody, CONTEXT + 2, TAG, &envelope));
        request = receive(match.to, CONTEXT + 2, TAG, room[0], length, &given_up);
        IS(0, match.table->cancel(match.module, request));
        UNTIL(given_up.count == 1);
        IS(HAWSER_ERR_CANCELLED, given_up.status);
        operations += 6;
    }
    return operations;
}

static void grow(long most, long most_bytes)
{
    start();
    join();
    grow_over(most, most_bytes, batch);
    leave();
}

MAIN(growth_cases)
