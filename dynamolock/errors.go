package dynamolock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/cloudlease/cloudlease/internal/excerpt"
	"github.com/cloudlease/cloudlease/internal/storeerr"
	"github.com/cloudlease/cloudlease/lease"
)

// verdict is what an error code of the service means.
type verdict struct {
	class error
	hint  string // %s: the table
}

// codes is the meaning of every error code that the used actions document. Codes that are not here go by their status.
var codes = map[string]verdict{
	"AccessDeniedException":                  {lease.ErrDenied, "allow the action on table %s (and the use of its key)"},
	"UnrecognizedClientException":            {lease.ErrDenied, "check the credentials"},
	"InvalidSignatureException":              {lease.ErrDenied, "check the secret key and this host's clock"},
	"IncompleteSignature":                    {lease.ErrDenied, "check the credentials"},
	"MissingAuthenticationToken":             {lease.ErrDenied, "check the credentials"},
	"ExpiredTokenException":                  {lease.ErrDenied, "renew the credentials"},
	"ResourceNotFoundException":              {lease.ErrMisconfigured, "create table %s, or check its name, region and endpoint"},
	"ValidationException":                    {lease.ErrMisconfigured, "table %s needs the string hash key that the documentation names, and no sort key"},
	"TableNotFoundException":                 {lease.ErrMisconfigured, "create table %s, or check its name, region and endpoint"},
	"ThrottlingException":                    {lease.ErrUnavailable, "table %s is throttled"},
	"ProvisionedThroughputExceededException": {lease.ErrUnavailable, "table %s has too little capacity"},
	"RequestLimitExceeded":                   {lease.ErrUnavailable, "the account's limit is reached"},
	"ReplicatedWriteConflictException":       {lease.ErrUnavailable, "another region writes table %s"},
	"TransactionConflictException":           {lease.ErrUnavailable, "a transaction holds the item"},
	"ItemCollectionSizeLimitExceededException": {
		lease.ErrMisconfigured, "table %s must have no local secondary index",
	},
}

// secretive are codes whose message repeats what was signed, the session token included.
var secretive = map[string]bool{"InvalidSignatureException": true, "IncompleteSignature": true}

// fail classifies an error of the SDK. wrote tells that the request was a write, so that no answer means that it may have
// been done.
func fail(ctx context.Context, op, table, name string, wrote bool, err error) error {
	e := &lease.Error{Op: op, Store: place(table), Name: name, Err: err}
	e.Class, e.Hint = classify(ctx, wrote, err)
	if strings.Contains(e.Hint, "%s") {
		e.Hint = fmt.Sprintf(e.Hint, table)
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok && secretive[api.ErrorCode()] {
		e.Err = &storeerr.ToldError{Text: api.ErrorCode(), Err: err}
	}
	return e
}

func classify(ctx context.Context, wrote bool, err error) (class error, hint string) {
	unanswered := lease.ErrUnavailable
	if wrote {
		unanswered = lease.ErrInDoubt
	}
	if _, ok := errors.AsType[*storeerr.UnsentError](err); ok {
		return lease.ErrUnavailable, ""
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		if v, known := codes[api.ErrorCode()]; known {
			return v.class, v.hint
		}
		if _, throttled := retry.DefaultThrottleErrorCodes[api.ErrorCode()]; throttled {
			return lease.ErrUnavailable, "the service asks for fewer requests"
		}
		if _, passing := retry.DefaultRetryableErrorCodes[api.ErrorCode()]; passing {
			return unanswered, ""
		}
	}
	if resp, ok := errors.AsType[*awshttp.ResponseError](err); ok && resp.HTTPStatusCode() != 0 { // 0: nothing came back
		if brokenOff(err) {
			return unanswered, ""
		}
		switch status := resp.HTTPStatusCode(); {
		case status == http.StatusUnauthorized, status == http.StatusForbidden:
			return lease.ErrDenied, "check the credentials"
		case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
			return unanswered, ""
		case status >= http.StatusBadRequest:
			return lease.ErrMisconfigured, "check that the endpoint is DynamoDB's"
		}
		return unanswered, "" // an answer that could not be read
	}
	if ctx.Err() != nil {
		return unanswered, ""
	}
	if _, sent := errors.AsType[*smithyhttp.RequestSendError](err); sent {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return lease.ErrUnavailable, "check the endpoint and the network"
		}
		return unanswered, ""
	}
	return unsent(err, unanswered)
}

// brokenOff tells whether the connection ended within the answer, so that its status is all there is: it does not say which error
// it was.
func brokenOff(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// unsent classifies what failed inside the SDK before anything was sent. What is not known to be so, such as the error of a
// wrapper around the client, counts as unanswered.
func unsent(err, unanswered error) (class error, hint string) {
	text := err.Error()
	if strings.Contains(text, "get identity") || strings.Contains(text, "failed to retrieve credentials") {
		if _, network := errors.AsType[net.Error](err); network {
			return lease.ErrUnavailable, "the source of the client's credentials does not answer"
		}
		return lease.ErrDenied, "give the client credentials"
	}
	if strings.Contains(text, "Missing Region") || strings.Contains(text, "ResolveEndpoint") || strings.Contains(text, "resolve auth scheme") {
		return lease.ErrMisconfigured, "check the client's region and endpoint"
	}
	return unanswered, ""
}

// refused is the item that made a condition fail; ok tells that a condition failed. Some engines do not return the item.
func refused(err error) (it item, ok bool) {
	if cc, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return cc.Item, true
	}
	return nil, false
}

// dateOf is the service's time in an error answer. Answers without DynamoDB's request id come from a gateway or a proxy, whose
// clock is not the service's.
func dateOf(err error) (time.Time, bool) {
	resp, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || resp.Response == nil || resp.Response.Response == nil || resp.Response.Header.Get("X-Amzn-Requestid") == "" {
		return time.Time{}, false
	}
	date, err := http.ParseTime(resp.Response.Header.Get("Date"))
	return date, err == nil
}

func lost(op, table, name string, rec record) error {
	why := errors.New("the record is gone")
	switch {
	case rec.absent():
	case rec.free():
		why = fmt.Errorf("it was released or broken; its token is %d now", rec.version)
	default:
		why = fmt.Errorf("%s holds it with token %d now", excerpt.Of(rec.displayed(), lease.MaxName), rec.version)
	}
	return &lease.Error{Op: op, Store: place(table), Name: name, Class: lease.ErrLost, Err: why}
}
