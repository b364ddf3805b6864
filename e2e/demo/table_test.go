package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	demo "github.com/cloudlease/cloudlease/e2e/demo"
)

func TestTableAlignsItsColumns(t *testing.T) {
	got := demo.Table([]string{"run", "token", "result"},
		[]string{"2026-03-02", "33", "refused"},
		[]string{"…03", "34", ""},
	)
	require.Equal(t, ""+
		"  run         token  result\n"+
		"  ----------  -----  -------\n"+
		"  2026-03-02  33     refused\n"+
		"  …03         34\n", got)
}
