/* What is around the holders: the network with the table behind it, the clock, an operator, the fenced storage. */

/* deliver lets the write in slot i pass or not, and answers the holder if that still waits. */
inline deliver(i) {
	pass = PASSES(net[i]);
	if
	:: pass && net[i].kind == release -> item.holder = 0
	:: pass && net[i].kind == renew -> copy(item, net[i].to)
	:: pass && net[i].kind != release && net[i].kind != renew ->
		CHECK(tokens_grow, net[i].to.version > top);
		if
		:: net[i].kind == take_seen && item.holder != 0 -> REACH(TAKEN_DEAD)
		:: net[i].kind == create && top != 0 -> REACH(MADE_AGAIN)
		:: else
		fi;
		top = net[i].to.version;
		copy(item, net[i].to);
#ifdef DELETION
		if
		:: net[i].kind == create -> made = now
		:: else
		fi;
#endif
#ifdef STORAGE
		grants++; grant_of_item = grants;
#endif
	:: else
	fi;
	if
	:: pass -> SAY("t=%d  table                %e of holder %d is stored\n", now, net[i].kind, OWNER(i))
	:: !pass -> SAY("t=%d  table                %e of holder %d is refused\n", now, net[i].kind, OWNER(i))
	fi;
	if
	:: waits[OWNER(i)] == i + 1 && answer[OWNER(i)] == 0 && pass ->
		answer[OWNER(i)] = granted;
#ifdef STORAGE
		mine[OWNER(i)] = grant_of_item
#endif
	:: waits[OWNER(i)] == i + 1 && answer[OWNER(i)] == 0 && !pass ->
		answer[OWNER(i)] = refused; look(OWNER(i))
	:: else
	fi;
	pass = false;
	SLOT(TIDY)
}

#define DELIVER(i) :: d_step { net[i].kind != 0 -> deliver(i) }

proctype table() {
	bool pass;
end:	do
	SLOT(DELIVER)
	od
}

#define EXPIRE(c) if :: trust[c] < now -> trust[c] = 0 :: else fi;

proctype clock() {
	(began > 0);
end:	do
	:: d_step { now < END -> now++; EACH(EXPIRE) }
	od
}

#ifdef DELETION
#ifdef RESIDUE_YOUNG
#define OLD_ENOUGH true
#else
#define OLD_ENOUGH (now >= made + RESIDUE)
#endif

#ifdef RESIDUE_LATE
#define NO_CREATE(i)
#else
#define NO_CREATE(i) if :: net[i].kind == create -> clear(i) :: else fi; /* none is in flight any more */
#endif

proctype operator() {
end:	atomic {
		item.version != 0 && OLD_ENOUGH ->
		item.version = 0; item.holder = 0; item.end = 0; deleted = true;
#ifdef STORAGE
		grant_of_item = 0;
#endif
		SLOT(NO_CREATE)
	}
}
#endif

#ifdef STORAGE
#ifdef NO_FENCE
#define FENCE(p) true
#else
#define FENCE(p) (p.token > stored.token || (p.token == stored.token && p.by == stored.by))
#endif

#define WRITE(c) :: d_step { put[c].token != 0 -> \
	if \
	:: FENCE(put[c]) -> \
		SAY("t=%d  storage              write of holder %d with token %d is stored\n", now, c, put[c].token); \
		CHECK(fence_holds, put[c].grant >= stored.grant); \
		stored.token = put[c].token; stored.by = c; stored.grant = put[c].grant \
	:: else -> REACH(STALE_REFUSED); CHECK(newest_passes, put[c].grant < stored.grant) \
	fi }

proctype storage() {
end:	do
	EACH(WRITE)
	od
}
#endif

#define RUN(c) run client(c);

init {
	atomic {
#ifdef OLD_ITEM
		item.version = 1; top = 1;
#endif
		EACH(RUN)
		run clock(); run table();
#ifdef DELETION
		run operator();
#endif
#ifdef STORAGE
		run storage()
#endif
	}
}
