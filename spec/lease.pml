/*
 * The lease-and-fence protocol of package dynamolock. README.md maps its parts to the code and says what is bounded.
 *
 * Between two steps of a holder anything may happen for any time: that is a pause. A write that was sent may be stored at any
 * later instant, any number of times, or never. One unit of time is the second by which front ends may differ.
 */

#ifndef HOLDERS
#define HOLDERS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2 /* acquires begun by one holder */
#endif
#ifndef FIRST
#define FIRST ATTEMPTS /* those of the holder that begins */
#endif
#ifndef TRIES
#define TRIES 2    /* sends of one attempt whose answers are lost */
#endif
#ifndef RENEWALS
#define RENEWALS 2 /* sent during one grant */
#endif
#ifndef FIRST_RENEWALS
#define FIRST_RENEWALS RENEWALS /* those of the holder that begins */
#endif
#ifndef TTL
#define TTL 2
#endif
#ifndef END
#define END 7      /* the clock stops here */
#endif

#define SKEW 1     /* servertime.Skew */
#define LEAD 5     /* creationLead */
#define FINE 8     /* tokens in one unit of time: the protocol counts them in ms, and no series of grants overtakes the clock */
#define RESIDUE 2  /* an item younger than this may repeat a token when it is deleted */

mtype = { take_free, take_seen, create, renew, release };
mtype = { granted, refused };

/* version 0: there is no item. holder 0: free; otherwise the client and its attempt, never used twice. There is no nonce: a write
   on the condition of the record as it was seen compares all of it, which lets no fewer writes pass. */
typedef Record {
	byte version; byte holder; byte end;
#ifdef LATENESS
	byte sent; /* when the write that left it was sent; for a property */
#endif
};
typedef Write { mtype kind; Record to; Record seen };

Record item;
Write net[HOLDERS * 2];      /* the last two undecided writes of each holder */
Record seen[HOLDERS];        /* Store.seen: what the holder's store saw last */
byte waits[HOLDERS];         /* 1 + the slot in net whose answer the holder waits for */
mtype answer[HOLDERS];
byte trust[HOLDERS];         /* the last instant at which the holder trusts its lease; 0: it does not */
byte now = 1;                /* the slowest front end's clock: each shows now or now + SKEW */
byte began;                  /* how many holders have begun; they are alike, so they begin in order */

byte top;                    /* the highest token granted */
#ifdef DELETION
byte made;                   /* when the item was created */
bool deleted;
#endif
#ifdef STORAGE
typedef Put { byte token; byte by; byte grant };
Put put[HOLDERS];            /* a write to the fenced storage, in flight */
Put stored;
byte grants, grant_of_item, mine[HOLDERS]; /* grants are counted beside the tokens, to judge them */
#endif

/* The properties. Spin names the one that fails. */
bool one_holder = true, tokens_grow = true, free_in_time = true, fence_holds = true, newest_passes = true, unreached = true;
#define CHECK(property, condition) property = (condition); assert(property)

#ifdef TELL
#define SAY printf           /* a line of the sequence chart, when a counter-example is replayed */
#else
#define SAY(text, ...) skip
#endif

/* REACH(n): a run with -DREACHED=n fails here, so that a property is not true only because nothing happens. */
#ifndef REACHED
#define REACHED 0
#endif
#define REACH(n) CHECK(unreached, REACHED != n)
#define TAKEN_DEAD 1
#define OWN_FOUND 2
#define MADE_AGAIN 3
#define STALE_REFUSED 4

#define pause skip           /* here the others run, for any time */
#define ID(client, attempt) ((client) * 4 + (attempt))
#define ROUNDS(c) ((c) == 0 -> FIRST : ATTEMPTS)
#define BEATS(c) ((c) == 0 -> FIRST_RENEWALS : RENEWALS)
#define OWNER(slot) ((slot) / 2)
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))

#if HOLDERS == 2
#define ALONE(c) (trust[1 - (c)] == 0)
#define EACH(do) do(0) do(1)
#define SLOT(do) do(0) do(1) do(2) do(3)
#else
#define ALONE(c) (trust[((c) + 1) % 3] == 0 && trust[((c) + 2) % 3] == 0)
#define EACH(do) do(0) do(1) do(2)
#define SLOT(do) do(0) do(1) do(2) do(3) do(4) do(5)
#endif

#include "rules.pml"

inline copy(dst, src) {
	dst.version = src.version; dst.holder = src.holder; dst.end = src.end;
#ifdef LATENESS
	dst.sent = src.sent;
#endif
}

/* look is what a consistent read gives, and a refused write (ALL_OLD). */
inline look(c) {
	copy(seen[c], item);
#ifdef STORAGE
	mine[c] = grant_of_item;
#endif
}

/* send puts a write into flight and waits for its answer. Where there is no slot one is used again: that write was lost. */
inline send(c, k, v, h, e) {
	if
	:: net[c * 2].kind == 0 -> slot = c * 2
	:: net[c * 2].kind != 0 && net[c * 2 + 1].kind == 0 -> slot = c * 2 + 1
	:: net[c * 2].kind != 0 && net[c * 2 + 1].kind != 0 -> slot = c * 2
	:: net[c * 2].kind != 0 && net[c * 2 + 1].kind != 0 -> slot = c * 2 + 1
	fi;
	clear(slot);
	net[slot].kind = k; net[slot].to.version = v; net[slot].to.holder = h; net[slot].to.end = e;
#ifdef LATENESS
	net[slot].to.sent = now;
#endif
	if
	:: k == take_seen -> copy(net[slot].seen, seen[c])
	:: else
	fi;
	waits[c] = slot + 1;
	SAY("t=%d  holder %d -> table    %e, token %d, end %d\n", now, c, net[slot].kind, v, e);
	slot = 0
}

/* done ends the wait for an answer. */
inline done(c) {
	waits[c] = 0; answer[c] = 0;
	SLOT(TIDY)
}

/* servertime.Clock: bounds that the front ends' Dates can prove. */
inline read_earliest(x) {
	if
	:: x = now
	:: x = now + SKEW
#ifdef WIDE
	:: x = now - 1
#endif
	fi
}

inline read_latest(x, at) {
	if
	:: x = at
#ifdef WIDE
	:: x = at + 1
#endif
	fi
}

#ifdef DEAD_WITHOUT_SKEW
#define DEAD(earliest, r) (earliest > r.end)
#else
#define DEAD(earliest, r) (earliest > r.end + SKEW)
#endif

#ifdef TRUST_FROM_ANSWER
#define COUNTED_FROM(at) now
#else
#define COUNTED_FROM(at) at
#endif

/* believe begins or extends trust: until the service's clock can have reached end, counted from at (Store.trust, Lease.extend). */
inline believe(c, at, e) {
	read_latest(x, at);
	x = (e < x -> 0 : MIN(TTL, e - x) + COUNTED_FROM(at));
	if
	:: x >= now -> trust[c] = MAX(trust[c], x)
	:: else
	fi;
	x = 0;
	SAY("t=%d  holder %d             trusts token %d until t=%d\n", now, c, token, trust[c]);
#ifndef DELETION
	CHECK(one_holder, trust[c] == 0 || ALONE(c))
#endif
}

/* take sends attempt.takeSeen: the record as it was seen, absent, free or dead. */
inline take() {
	sent = now; end = x + TTL; token = MAX(MAX(floor, seen[c].version) + 1, x * FINE); x = 0;
	if
	:: seen[c].version == 0 ->
		read_latest(x, now);
		token = MAX(token, (x + LEAD) * FINE); x = 0;
		send(c, create, token, ID(c, attempt), end)
	:: else -> send(c, take_seen, token, ID(c, attempt), end)
	fi
}

/* grab sends attempt.takeFree, without having looked. */
inline grab() {
	sent = now; end = x + TTL; token = MAX(floor + 1, x * FINE); x = 0;
	send(c, take_free, token, ID(c, attempt), end)
}

proctype client(byte c) {
	byte attempt, try, floor, since, sent, token, end, next, renewals;
	byte x, slot;     /* used within one step */
	bool cold = true; /* no answer has told the service's time yet */

	(began >= c);
again: /* Client.try */
	atomic {
		try = 0; token = 0; end = 0; next = 0; sent = 0; floor = 0; renewals = 0;
		if
		:: attempt == ROUNDS(c) -> goto over
		:: attempt < ROUNDS(c) -> attempt++; began = MAX(began, c + 1)
		fi
	}
once_more: /* Store.TryAcquire */
	pause;
	atomic {
		try++; floor = seen[c].version;
		if
		:: try == 1 && TRIES > 1 -> since = now
		:: else
		fi;
#ifdef COLD_WRITE
		x = (cold -> now + 2 * TTL + 3 : 0); /* this host's wall clock */
#endif
		if
#ifndef COLD_WRITE
		:: cold -> cold = false; look(c); goto judge
#else
		:: cold -> cold = false
#endif
		:: !cold -> read_earliest(x)
		fi;
		if
		:: seen[c].holder != 0 && DEAD(x, seen[c]) -> take()
		:: else -> grab()
		fi
	}
wait:
	pause;
	atomic {
		if
		:: answer[c] == granted ->
			seen[c].version = token; seen[c].holder = ID(c, attempt); seen[c].end = end;
#ifdef LATENESS
			seen[c].sent = sent;
#endif
			believe(c, sent, end);
			done(c);
			goto hold
		:: answer[c] == refused -> done(c); goto judge
		:: answer[c] == 0 && try < TRIES -> /* lost or late: the same attempt once more */
			done(c); goto once_more
		:: answer[c] == 0 && try == TRIES -> token = 0; done(c); goto give_back
		fi
	}
judge: /* attempt.judge */
	pause;
	atomic {
		token = 0; end = 0; sent = 0;
		if
		:: seen[c].holder == ID(c, attempt) -> /* an earlier try was stored: trusted from the first send */
			REACH(OWN_FOUND);
			token = seen[c].version; end = seen[c].end;
			believe(c, since, end);
			goto hold
		:: else
		fi;
		read_earliest(x);
		if
		:: seen[c].holder == 0 || DEAD(x, seen[c]) -> take(); goto wait
		:: else ->
			x = 0;
#ifdef LATENESS
			CHECK(free_in_time, now < seen[c].sent + 2 * TTL + 3);
#endif
			goto again
		fi
	}
hold: /* Lease.keep */
	pause;
	atomic {
		since = 0; sent = 0; floor = 0; try = 0; next = 0;
		if
		:: trust[c] == 0 -> goto give_back /* lost by its own clock, or granted too late */
		:: trust[c] != 0 && renewals < BEATS(c) ->
			renewals++;
			read_earliest(x);
			sent = now; next = MAX(x + TTL, end); x = 0;
			send(c, renew, token, ID(c, attempt), next)
		:: trust[c] != 0 -> trust[c] = 0; goto give_back /* Release: trust ends first */
#ifdef STORAGE
		:: trust[c] != 0 -> /* the holder looks at its lease, and writes */
			put[c].token = token; put[c].by = c; put[c].grant = mine[c];
			SAY("t=%d  holder %d -> storage  write with token %d\n", now, c, token);
			goto hold
#endif
		fi
	}
	pause;
	atomic {
		if
		:: answer[c] == granted -> end = next
		:: answer[c] == refused && seen[c].version == token && seen[c].holder == ID(c, attempt) ->
			end = seen[c].end /* a later end is stored already */
		:: answer[c] == refused && !(seen[c].version == token && seen[c].holder == ID(c, attempt)) ->
			trust[c] = 0; done(c); goto again /* ErrLost */
		:: answer[c] == 0 -> done(c); goto hold
		fi;
		if
		:: trust[c] != 0 -> believe(c, sent, end)
		:: else /* a late success revives nothing */
		fi;
		done(c);
		goto hold
	}
give_back: /* Release, retried or not; token 0: of an attempt whose outcome is unknown */
	pause;
	atomic {
		send(c, release, token, ID(c, attempt), 0);
		done(c);
		goto again
	}
over:
	atomic {
		attempt = 0; try = 0; since = 0;
		seen[c].version = 0; seen[c].holder = 0; seen[c].end = 0;
#ifdef LATENESS
		seen[c].sent = 0;
#endif
#ifdef STORAGE
		mine[c] = 0;
#endif
	}
}

#include "world.pml"
