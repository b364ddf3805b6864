package leasetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// fiftyWaiters is DY-12: fifty hosts want one lock for 200 ms each.
func fiftyWaiters(e *env) {
	const waiters, hold = 50, 200 * time.Millisecond
	hosts := make([]*host, waiters)
	for i := range hosts {
		hosts[i] = e.host(fmt.Sprint("host", i))
	}
	ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	waited := make([]time.Duration, waiters)
	var wg sync.WaitGroup
	for i, h := range hosts {
		c := h.client()
		wg.Go(func() {
			l, err := c.Acquire(ctx, "job")
			if err != nil {
				e.Errorf("%s was not served: %v", h.name, err)
				return
			}
			waited[i] = time.Since(began)
			e.history.Watch(l)
			time.Sleep(hold)
			if err := l.Release(e.Context()); err != nil {
				e.Errorf("release: %v", err)
			}
		})
	}
	wg.Wait()
	total := time.Since(began)
	require.Less(e, total, 40*time.Second)

	slots := map[int]int{} // requests by 100 ms
	requests, waiting := 0, 0.0
	for i, h := range hosts {
		asked := h.faults.Calls("acquire")
		asked = append(asked, h.faults.Calls("wait")...)
		requests, waiting = requests+len(asked), waiting+waited[i].Seconds()
		for _, c := range asked {
			slots[int(c.Sent.Sub(began)/(100*time.Millisecond))]++
		}
	}
	require.LessOrEqual(e, float64(requests), 2*waiting+waiters, "the waiters ask too often")
	for second := 1; second < int(total.Seconds()); second++ { // all start in the first
		sum, most := 0, 0
		for slot := second * 10; slot < second*10+10; slot++ {
			sum, most = sum+slots[slot], max(most, slots[slot])
		}
		if sum >= 40 { // of fewer, a third comes together by chance
			require.LessOrEqual(e, most, sum/3+3, "the waiters come back together in second %d", second)
		}
	}
}
