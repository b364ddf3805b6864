package election

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/cloudlease/cloudlease/lease"
)

// Health answers 200 while the candidate is well, 503 if it is not: when lead has not returned although its lease has ended on
// the service, when lead is past StopLimit, when the loop that stands for leader is stuck, and after Run has returned. Following
// another leader is well, and so is waiting for a store that is out, which the body tells: ending processes would not
// mend it. The body is a JSON object of a few hundred bytes. It makes no request to the store.
func (e *Election) Health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := e.Status()
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store")
		if s.Fault != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(report{ // who asked has gone, otherwise
			Election: s.Name, State: s.State, Holder: s.Holder, Leader: s.Leader.Holder, Token: s.Leader.Token,
			Left: float64(s.Left.Milliseconds()) / 1000, Namesake: s.Leader.Namesake, Store: classOf(s.Err), Fault: s.Fault,
		})
	})
}

// report is the body of a health answer.
type report struct {
	Election string      `json:"election"`
	State    State       `json:"state"`
	Holder   string      `json:"holder"`                // this candidate
	Leader   string      `json:"leader,omitempty"`      // as last seen
	Token    lease.Token `json:"token,omitempty"`       // of the leader's term
	Left     float64     `json:"left_seconds,omitzero"` // until this leader's deadline, if it is not renewed
	Namesake bool        `json:"namesake,omitempty"`
	Store    string      `json:"store,omitempty"` // the class of the last try's failure
	Fault    string      `json:"fault,omitempty"`
}

// classOf is the class of err in words, without names and addresses.
func classOf(err error) string {
	if e, ok := errors.AsType[*lease.Error](err); ok {
		return e.Class.Error()
	}
	return ""
}
