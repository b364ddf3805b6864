//go:build !unix

package scene

import "context"

func (Subject) lambda() bool { return false }

func coldStart(context.Context, *World, Subject) error { return errUnsupported }
