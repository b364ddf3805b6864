package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/fence"
	"github.com/cloudlease/cloudlease/lease"
	"github.com/cloudlease/cloudlease/shard"
)

// handler is the function.
type handler struct {
	worker  *shard.Worker
	stream  stream
	results fence.Guard
	reserve time.Duration
	log     *slog.Logger
}

// report is the function's answer.
type report struct {
	Shards  int64 `json:"shards"`  // that this invocation worked on
	Records int64 `json:"records"` // that it processed
	Ended   int64 `json:"ended"`   // shards that came to their end
}

// Invoke implements lambda.Handler. It works until the invocation's deadline less the reserve, or SIGTERM, and answers when its
// shards are handed back, so that nothing runs while the process is frozen. An event's content does not matter.
func (h *handler) Invoke(ctx context.Context, _ []byte) ([]byte, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	if deadline, ok := ctx.Deadline(); ok {
		end := deadline.Add(-h.reserve)
		if left := time.Until(end); left <= 0 {
			err := fmt.Errorf("the function's time-out is not longer than the reserve of %v", h.reserve)
			h.tell(report{}, err)
			return nil, err
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	var shards, records, ended atomic.Int64
	err := h.worker.Run(ctx, func(ctx context.Context, s *shard.Shard) error {
		shards.Add(1)
		n, done, err := h.process(ctx, s)
		records.Add(int64(n))
		if done {
			ended.Add(1)
		}
		return err
	})
	r := report{Shards: shards.Load(), Records: records.Load(), Ended: ended.Load()}
	h.tell(r, err)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// tell writes the line that says how an invocation ended. Alarms look for it.
func (h *handler) tell(r report, err error) {
	log := h.log.With(slog.Int64("shards", r.Shards), slog.Int64("records", r.Records), slog.Int64("ended", r.Ended))
	if err != nil {
		log.Error("shard worker", slog.String("err", err.Error()))
		return
	}
	log.Info("shard worker")
}

// process works on a shard batch by batch, from its last checkpoint on, until it is asked to stop or the shard has ended.
func (h *handler) process(ctx context.Context, s *shard.Shard) (processed int, ended bool, err error) {
	at := 0
	if p := s.Position(); p != "" {
		if at, err = strconv.Atoi(p); err != nil {
			return 0, false, fmt.Errorf("the checkpoint of %s: %w", s.ID(), err)
		}
	}
	for {
		batch := h.stream.read(s.ID(), at)
		if len(batch) == 0 {
			return processed, true, s.Finish(ctx)
		}
		for _, r := range batch {
			if err := h.write(ctx, s, r); err != nil {
				return processed, false, err
			}
			processed++
		}
		at = batch[len(batch)-1].Number
		if err := s.Checkpoint(ctx, strconv.Itoa(at)); err != nil {
			return processed, false, err
		}
		select {
		case <-s.Stopping():
			return processed, false, nil
		default:
		}
	}
}

// write processes one record: it becomes the shard's result, unless a newer owner of the shard has written one.
func (h *handler) write(ctx context.Context, s *shard.Shard, r record) error {
	t := time.NewTimer(h.stream.pace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = h.results.Put(ctx, s.ID(), value, s.Token(), s.Holder())
	if errors.Is(err, lease.ErrStale) { // the worker does not tell it if the shard is lost by now
		h.log.Warn("stale write refused", slog.String("shard", s.ID()), slog.String("err", err.Error()))
	}
	return err
}
