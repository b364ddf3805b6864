/* The conditions in the writes, each with the mistakes that the model must find. */

#ifdef RENEW_LOWERS
#define NOT_LOWER(m) true
#else
#define NOT_LOWER(m) (item.end <= m.to.end)
#endif

#define OURS(m) (item.version == m.to.version && item.holder == m.to.holder)

#ifdef RENEW_CREATES
#define RENEWS(m) (OURS(m) && NOT_LOWER(m) || item.version == 0)
#else
#define RENEWS(m) (OURS(m) && NOT_LOWER(m))
#endif

#if defined RELEASE_ANY
#define RELEASES(m) (item.holder != 0)
#elif defined RELEASE_BY_CLIENT
#define RELEASES(m) (item.holder != 0 && item.holder / 4 == m.to.holder / 4)
#else
#define RELEASES(m) (item.holder == m.to.holder && (m.to.version == 0 || item.version == m.to.version))
#endif

#ifdef CREATE_BY_PUT
#define ABSENT true
#else
#define ABSENT (item.version == 0)
#endif

#define SAME(m) (item.version == m.seen.version && item.holder == m.seen.holder && item.end == m.seen.end)

#define PASSES(m) ( \
	(m.kind == take_free && item.version != 0 && item.holder == 0 && item.version < m.to.version) || \
	(m.kind == take_seen && SAME(m) && item.version < m.to.version) || \
	(m.kind == create && ABSENT) || \
	(m.kind == renew && RENEWS(m)) || \
	(m.kind == release && RELEASES(m)))

/* OVER: m can pass no more, because versions grow, an end under one version does not go down, and a holder that has gone does
   not come back. Taking such writes out changes nothing but the number of states. */
#ifdef DELETION
#define STAYS deleted
#else
#define STAYS true
#endif
#if defined RENEW_LOWERS
#define RENEW_OVER(m) (!OURS(m))
#elif defined RENEW_CREATES
#define RENEW_OVER(m) false
#else
#define RENEW_OVER(m) (!RENEWS(m))
#endif

#if defined RELEASE_ANY || defined RELEASE_BY_CLIENT
#define RELEASE_OVER(m, other) false
#else
#define RELEASE_OVER(m, other) (!RELEASES(m) && (m.to.version != 0 || other.kind == 0 || other.to.holder != m.to.holder))
#endif

#if defined CREATE_BY_PUT || defined RESIDUE_YOUNG || defined RESIDUE_LATE
#define OVER(m, other) false /* tokens do not grow in these */
#else
#define OVER(m, other) ( \
	(m.kind == take_free && m.to.version <= top) || \
	(m.kind == take_seen && !SAME(m)) || \
	(m.kind == create && item.version != 0 && STAYS) || \
	(m.kind == renew && RENEW_OVER(m)) || \
	(m.kind == release && RELEASE_OVER(m, other)))
#endif

inline clear(i) {
	net[i].kind = 0;
	net[i].to.version = 0; net[i].to.holder = 0; net[i].to.end = 0;
	net[i].seen.version = 0; net[i].seen.holder = 0; net[i].seen.end = 0;
#ifdef LATENESS
	net[i].to.sent = 0;
#endif
}

#define TIDY(i) if :: net[i].kind != 0 && waits[OWNER(i)] != i + 1 && OVER(net[i], net[i ^ 1]) -> clear(i) :: else fi;
