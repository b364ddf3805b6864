package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/internal/emulator"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/lease/leasetest"
	"github.com/cloudlease/cloudlease/memlease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// statement is the documented statement of that name: the SQL block that begins with it as a comment.
func statement(t *testing.T, name string) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/fences.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```sql\n-- " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(doc)
	require.NotNil(t, found, "docs/fences.md has no SQL block %q", name)
	return strings.TrimSpace(string(found[1]))
}

// TestPostgres runs what docs/fences.md says, word by word, on a real server.
func TestPostgres(t *testing.T) {
	for _, server := range servers() {
		t.Run(server.Name, func(t *testing.T) {
			url := server.For(t).URL
			leasetest.TestGuard(t, leasetest.GuardHarness{New: func(t *testing.T) leasetest.Guarded {
				t.Helper()
				return newDatabase(t, url)
			}})
			for name, test := range map[string]func(*testing.T, *database){
				"PP01_PausedBetweenCheckAndWrite":    pausedBeforeWrite,
				"RowsThatExist":                      rowsThatExist,
				"FenceRowGuardsATransaction":         fenceRow,
				"TransactionThatWaitedIsRefused":     waitedForNewer,
				"RepeatableReadFailsAndIsSentAgain":  repeatableRead,
				"DeleteForgetsTheTokenUnlessMarked":  deleteForgets,
				"EnteringClosesTheGapBeforeTheWrite": enterClosesGap,
			} {
				t.Run(name, func(t *testing.T) { test(t, newDatabase(t, url)) })
			}
		})
	}
}

// servers are the SQL servers to run on, none unless asked for.
func servers() []emulator.Starter {
	if os.Getenv(emulator.EnginesVariable) != "1" {
		return nil
	}
	return []emulator.Starter{{Name: "postgres", Start: emulator.StartPostgres}}
}

// TestDocumentedStatements: every block that the tests run on a server is there, also where there is no server.
func TestDocumentedStatements(t *testing.T) {
	for _, name := range []string{"table", "put", "get", "fence column", "update", "fences", "enter"} {
		require.Regexp(t, "(?s)^(CREATE|INSERT|SELECT|ALTER|UPDATE) .*;$", statement(t, name))
	}
}

// database is the documented tables in a schema of their own.
type database struct{ *sql.DB }

var schemas atomic.Int64

func newDatabase(t *testing.T, url string) *database {
	t.Helper()
	schema := fmt.Sprint("test", schemas.Add(1))
	db, err := sql.Open("postgres", url+"&search_path="+schema)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, statement := range []string{
		"CREATE SCHEMA " + schema, statement(t, "table"), statement(t, "fences"),
		"CREATE TABLE accounts (id text PRIMARY KEY, owner text NOT NULL)", statement(t, "fence column"),
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	return &database{db}
}

// execer is a database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// affected runs a documented statement and tells how many rows it changed.
func affected(t *testing.T, on execer, name string, args ...any) int64 {
	t.Helper()
	done, err := on.ExecContext(t.Context(), statement(t, name), args...)
	require.NoError(t, err, name)
	rows, err := done.RowsAffected()
	require.NoError(t, err, name)
	return rows
}

// Guard implements leasetest.Guarded.
func (d *database) Guard(t *testing.T, h leasetest.Host) fence.Guard {
	t.Helper()
	return &guard{db: d.DB, put: statement(t, "put"), get: statement(t, "get"), faults: h.Faults}
}

// guard is the documented statements as a fence.Guard.
type guard struct {
	db       *sql.DB
	put, get string
	faults   *leasetest.Faults
}

// Put implements fence.Guard.
func (g *guard) Put(ctx context.Context, key string, value []byte, token lease.Token, holder string) error {
	if err := fence.Check(key, token, holder); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fail("put", key, lease.ErrUnavailable, context.Cause(ctx))
	}
	var rows int64
	err := g.faults.Intercept(ctx, "put", func() error {
		done, err := g.db.ExecContext(ctx, g.put, key, append([]byte{}, value...), uint64(token), holder)
		if err != nil {
			return err
		}
		rows, err = done.RowsAffected()
		return err
	})
	if err != nil {
		return fail("put", key, lease.ErrInDoubt, err)
	}
	if rows == 1 {
		return nil
	}
	have, err := g.Get(ctx, key)
	if err != nil {
		have = fence.Entry{} // refused all the same
	}
	return &fence.StaleError{Key: key, Token: token, Seen: have.Token, Holder: have.Holder}
}

// Get implements fence.Guard.
func (g *guard) Get(ctx context.Context, key string) (fence.Entry, error) {
	var e fence.Entry
	err := g.db.QueryRowContext(ctx, g.get, key).Scan(&e.Value, (*uint64)(&e.Token), &e.Holder)
	if errors.Is(err, sql.ErrNoRows) {
		return fence.Entry{}, nil
	}
	if err != nil {
		return fence.Entry{}, fail("get", key, lease.ErrUnavailable, err)
	}
	return e, nil
}

func fail(op, key string, class, err error) error {
	return &lease.Error{Op: op, Store: "PostgreSQL", Name: key, Class: class, Err: err}
}

// pausedBeforeWrite: a checks its lease and is paused; b takes over and writes; a wakes and writes without another check.
func pausedBeforeWrite(t *testing.T, d *database) {
	service := memlease.NewService()
	var paused atomic.Bool
	a := client(t, service, "a", &paused)
	b := client(t, service, "b", &atomic.Bool{})
	g := d.Guard(t, leasetest.Host{Faults: leasetest.NewFaults()})
	for round := range 8 {
		key := fmt.Sprint("k", round)
		old, err := a.TryAcquire(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, old.Err(), "the check before the write")
		paused.Store(true)

		next, err := b.Acquire(t.Context(), "job")
		require.NoError(t, err)
		require.Greater(t, next.Token(), old.Token())
		require.NoError(t, fence.Put(t.Context(), g, next, key, []byte("of b")))

		err = fence.Put(t.Context(), g, old, key, []byte("late, of a"))
		require.ErrorIs(t, err, lease.ErrStale)
		require.Equal(t, &fence.StaleError{Key: key, Token: old.Token(), Seen: next.Token(), Holder: next.Holder()}, err)
		have, err := g.Get(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, fence.Entry{Value: []byte("of b"), Token: next.Token(), Holder: next.Holder()}, have)
		require.ErrorIs(t, old.Err(), lease.ErrLost)
		require.ErrorIs(t, old.Release(t.Context()), lease.ErrLost)
		_ = next.Release(t.Context()) // on a machine that stands still it may have ended by itself
		paused.Store(false)
	}
}

// client is a host whose renewals do not come through while it is paused.
func client(t *testing.T, service *memlease.Service, holder string, paused *atomic.Bool) *lease.Client {
	t.Helper()
	store := service.Store(&memlease.Options{Intercept: func(ctx context.Context, op string, do func() error) error {
		if op == "renew" && paused.Load() {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return do()
	}})
	c, err := lease.New(store, &lease.Options{
		TTL: 500 * time.Millisecond, Holder: holder, Observer: lease.ObserverFunc(func(lease.Event) {}),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

func rowsThatExist(t *testing.T, d *database) {
	require.Zero(t, affected(t, d, "update", "x", "nobody", 5), "there is no such row")
	_, err := d.ExecContext(t.Context(), "INSERT INTO accounts (id, owner) VALUES ('x', 'bank')")
	require.NoError(t, err)
	require.EqualValues(t, 1, affected(t, d, "update", "x", "ann", 5), "never fenced before")
	require.EqualValues(t, 1, affected(t, d, "update", "x", "bob", 5), "the same lease writes again")
	require.EqualValues(t, 1, affected(t, d, "update", "x", "cid", uint64(lease.MaxToken)))
	require.Zero(t, affected(t, d, "update", "x", "dan", uint64(lease.MaxToken-1)), "stale")
	require.Equal(t, "cid", d.owner(t))
}

// owner is the owner of the account x.
func (d *database) owner(t *testing.T) string {
	t.Helper()
	var owner string
	require.NoError(t, d.QueryRowContext(t.Context(), "SELECT owner FROM accounts WHERE id = 'x'").Scan(&owner))
	return owner
}

// enter begins a transaction with the fence's row; admitted tells whether it may go on.
func (d *database) enter(t *testing.T, token lease.Token, holder string, level sql.IsolationLevel) (tx *sql.Tx, admitted bool) {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	return tx, affected(t, tx, "enter", "job", uint64(token), holder) == 1
}

// open makes the account x in a transaction of the holder with token 5.
func (d *database) open(t *testing.T) {
	t.Helper()
	tx, admitted := d.enter(t, 5, "a", sql.LevelDefault)
	require.True(t, admitted)
	_, err := tx.ExecContext(t.Context(), "INSERT INTO accounts (id, owner) VALUES ('x', 'of a')")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

func fenceRow(t *testing.T, d *database) {
	d.open(t)
	tx, admitted := d.enter(t, 5, "a", sql.LevelDefault)
	require.True(t, admitted, "the same lease again")
	require.NoError(t, tx.Commit())
	tx, admitted = d.enter(t, 5, "impostor", sql.LevelDefault)
	require.False(t, admitted)
	require.NoError(t, tx.Rollback())
	tx, admitted = d.enter(t, 6, "b", sql.LevelDefault)
	require.True(t, admitted)
	require.NoError(t, tx.Commit())
	tx, admitted = d.enter(t, 5, "a", sql.LevelDefault)
	require.False(t, admitted)
	require.NoError(t, tx.Rollback())
}

func enterClosesGap(t *testing.T, d *database) {
	d.open(t)
	require.EqualValues(t, 1, affected(t, d, "enter", "job", 6, "b"), "granted, nothing written yet")
	tx, admitted := d.enter(t, 5, "a", sql.LevelDefault)
	require.False(t, admitted)
	require.NoError(t, tx.Rollback())
}

// waitedForNewer: the former holder's transaction waits for the next holder's to commit, and compares with what that left.
func waitedForNewer(t *testing.T, d *database) {
	d.open(t)
	next, admitted := d.enter(t, 6, "b", sql.LevelDefault)
	require.True(t, admitted)
	rows := make(chan int64, 1)
	go func() { rows <- d.enterLate(t, sql.LevelDefault, nil) }()
	d.untilWaiting(t)
	_, err := next.ExecContext(t.Context(), "UPDATE accounts SET owner = 'of b'")
	require.NoError(t, err)
	require.NoError(t, next.Commit())
	require.Zero(t, <-rows)
	require.Equal(t, "of b", d.owner(t))
}

// enterLate enters with token 5 and leaves at once. failed, if not nil, is given the error of the statement.
func (d *database) enterLate(t *testing.T, level sql.IsolationLevel, failed *error) int64 {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Errorf("begin: %v", err)
		return -1
	}
	defer func() { _ = tx.Rollback() }() // nothing is to be kept
	done, err := tx.ExecContext(t.Context(), statement(t, "enter"), "job", 5, "a")
	switch {
	case err != nil && failed != nil:
		*failed = err
		return -1
	case err != nil:
		t.Errorf("enter: %v", err)
		return -1
	}
	rows, err := done.RowsAffected()
	if err != nil {
		t.Errorf("rows affected: %v", err)
	}
	return rows
}

// untilWaiting returns when some statement waits for a lock.
func (d *database) untilWaiting(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		err := d.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting)
		return err == nil && waiting > 0
	}, 20*time.Second, 5*time.Millisecond)
}

func repeatableRead(t *testing.T, d *database) {
	d.open(t)
	next, admitted := d.enter(t, 6, "b", sql.LevelDefault)
	require.True(t, admitted)
	var failed error
	rows := make(chan int64, 1)
	go func() { rows <- d.enterLate(t, sql.LevelRepeatableRead, &failed) }()
	d.untilWaiting(t)
	require.NoError(t, next.Commit())
	require.EqualValues(t, -1, <-rows)
	var said *pq.Error
	require.ErrorAs(t, failed, &said)
	require.EqualValues(t, "40001", said.Code)
	require.Zero(t, d.enterLate(t, sql.LevelRepeatableRead, nil), "sent again, it is told that it is stale")
}

func deleteForgets(t *testing.T, d *database) {
	put := func(value string, token int64, holder string) int64 {
		return affected(t, d, "put", "k", []byte(value), token, holder)
	}
	require.EqualValues(t, 1, put("new", 6, "b"))
	require.Zero(t, put("late", 5, "a"))
	require.EqualValues(t, 1, put("", 6, "b"), "marked as deleted, by a fenced write")
	require.Zero(t, put("late", 5, "a"))
	_, err := d.ExecContext(t.Context(), "DELETE FROM results")
	require.NoError(t, err)
	require.EqualValues(t, 1, put("late", 5, "a"), "forgotten with the row")
}
