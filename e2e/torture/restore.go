//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cloudlease/cloudlease/e2e/torture/check"
	"github.com/cloudlease/cloudlease/e2e/torture/history"
)

// sceneRestore sets the engine back to an older copy of its data, twice: once by the documented procedure (stop all clients,
// restore, let a TTL pass, start them), after which everything holds, and once while holders are alive, after which two may
// trust one lock for a TTL, and tokens and the fence hold all the same. What the locks guard is in another engine, which is
// not set back.
const sceneRestore = "restore"

// guardElsewhere starts a second engine for what the locks guard.
func (c *campaign) guardElsewhere(ctx context.Context) error {
	if !c.service.Durable() || c.service.Anew() {
		return fmt.Errorf("scene %s is played on dynamodb", sceneRestore)
	}
	var err error
	if c.guarded, err = c.service.Start(ctx, "", 0); err != nil {
		return err
	}
	return c.service.Prepare(ctx, c.guarded.URL)
}

// restores plays the scene.
func (c *campaign) restores(ctx context.Context) error {
	c.began = history.Now()
	phase := max(c.For/4, 3*c.service.TTL()) // so that the copies are older than the clock is uncertain
	err := c.snapshot(ctx, phase)
	if err == nil {
		err = c.restoreByTheBook(ctx)
	}
	if err == nil {
		err = c.snapshot(ctx, phase)
	}
	if err == nil {
		err = c.restoreAlive(ctx)
	}
	if err != nil {
		return err
	}
	rest(ctx, phase)
	return c.finish(ctx)
}

func (c *campaign) copyDir() string { return c.dataDir() + ".copy" }

// snapshot copies the engine's data between two phases of work.
func (c *campaign) snapshot(ctx context.Context, phase time.Duration) error {
	if !rest(ctx, phase) {
		return context.Cause(ctx)
	}
	err := c.crash(ctx, func() error {
		if err := os.RemoveAll(c.copyDir()); err != nil {
			return err
		}
		return os.CopyFS(c.copyDir(), os.DirFS(c.dataDir()))
	})
	if err == nil && !rest(ctx, phase) {
		err = context.Cause(ctx)
	}
	return err
}

// setBack replaces the engine's data by the copy.
func (c *campaign) setBack() error {
	if err := os.RemoveAll(c.dataDir()); err != nil {
		return err
	}
	return os.CopyFS(c.dataDir(), os.DirFS(c.copyDir()))
}

// restoreByTheBook stops all workers, restores, and lets a TTL pass before they start.
func (c *campaign) restoreByTheBook(ctx context.Context) error {
	from := history.Now()
	for _, h := range c.holders {
		if err := h.end(syscall.SIGTERM, time.Minute); err != nil {
			return err
		}
	}
	if err := c.crash(ctx, c.setBack); err != nil {
		return err
	}
	rest(ctx, c.service.TTL())
	for _, h := range c.holders {
		if err := h.start(); err != nil {
			return err
		}
	}
	c.obstacle("", "restore", from, history.Now())
	return nil
}

// restoreAlive restores under the workers' feet.
func (c *campaign) restoreAlive(ctx context.Context) error {
	from := history.Now()
	err := c.crash(ctx, c.setBack)
	c.restored = append(c.restored, check.Stretch{From: from - c.began, Until: history.Now() - c.began})
	return err
}
