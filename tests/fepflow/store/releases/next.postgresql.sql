SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE FUNCTION public.audit_entry_unchanged() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'rows of audit_entry do not change'; END $$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.api_key (
    id character varying(16) NOT NULL,
    name text NOT NULL,
    secret_hash character varying(64) NOT NULL,
    scopes text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);
CREATE TABLE public.audit_entry (
    id integer NOT NULL,
    at timestamp with time zone NOT NULL,
    caller text,
    source text,
    action text NOT NULL,
    resource text,
    outcome character varying(32) NOT NULL
);
CREATE SEQUENCE public.audit_entry_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_entry_id_seq OWNED BY public.audit_entry.id;
CREATE TABLE public.baseline (
    suite text NOT NULL,
    name character varying(100) NOT NULL,
    run_id character varying(64) NOT NULL,
    others text NOT NULL,
    set_at timestamp with time zone NOT NULL
);
CREATE TABLE public.blob (
    digest character varying(64) NOT NULL,
    size bigint NOT NULL,
    noted_at timestamp with time zone NOT NULL
);
CREATE TABLE public.cached_response (
    key character varying(64) NOT NULL,
    kind character varying(16) NOT NULL,
    model text NOT NULL,
    response_model text NOT NULL,
    mode character varying(16),
    text text NOT NULL,
    prompt_tokens integer,
    completion_tokens integer,
    cost_picousd bigint,
    dropped_params text NOT NULL,
    responded_at timestamp with time zone NOT NULL
);
CREATE TABLE public.calibration (
    id character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    judge character varying(64) NOT NULL,
    rubric character varying(64) NOT NULL,
    model text NOT NULL,
    parameters text NOT NULL,
    check_id text NOT NULL,
    field text NOT NULL,
    run_id character varying(64) NOT NULL,
    n integer NOT NULL,
    missing integer NOT NULL,
    statistics text NOT NULL
);
CREATE TABLE public.check_result (
    run_id character varying(64) NOT NULL,
    case_index integer NOT NULL,
    repeat integer NOT NULL,
    check_id text NOT NULL,
    content_hash character varying(64) NOT NULL,
    check_type text NOT NULL,
    status character varying(16) NOT NULL,
    passed boolean,
    result text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.evalguard_report (
    id character varying(64) NOT NULL,
    imported_at timestamp with time zone NOT NULL,
    source text NOT NULL,
    report_id text,
    model_name text,
    model_source text,
    evaluated_at timestamp with time zone,
    tasks text NOT NULL,
    report text NOT NULL,
    warnings text NOT NULL
);
CREATE TABLE public.evalguard_report_metric (
    report_id character varying(64) NOT NULL,
    metric_index integer NOT NULL,
    task_ref text,
    metric text
);
CREATE TABLE public.evalguard_run (
    run_id character varying(64) NOT NULL,
    completed_at timestamp with time zone NOT NULL
);
CREATE TABLE public.grader (
    id character varying(100) NOT NULL,
    name text NOT NULL,
    checks text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.label (
    id integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    run_id character varying(64) NOT NULL,
    case_index integer NOT NULL,
    repeat integer NOT NULL,
    check_id text NOT NULL,
    field text NOT NULL,
    label text NOT NULL,
    note text NOT NULL,
    labelled_by text NOT NULL,
    draw_id character varying(64),
    disputed boolean NOT NULL
);
CREATE TABLE public.label_draw (
    id character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    run_id character varying(64) NOT NULL,
    check_id text NOT NULL,
    seed bigint NOT NULL,
    design character varying(16) NOT NULL,
    case_ids text NOT NULL
);
CREATE SEQUENCE public.label_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.label_id_seq OWNED BY public.label.id;
CREATE TABLE public.metric_total (
    metric character varying(32) NOT NULL,
    suite text NOT NULL,
    label character varying(64) NOT NULL,
    value bigint NOT NULL
);
CREATE TABLE public.output (
    run_id character varying(64) NOT NULL,
    case_index integer NOT NULL,
    repeat integer NOT NULL,
    content_hash character varying(64) NOT NULL,
    output_id text,
    value text NOT NULL,
    metadata text,
    failed boolean NOT NULL,
    reused_from character varying(64),
    blob character varying(64),
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.page_session (
    id_hash character varying(64) NOT NULL,
    key_id character varying(16) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.preference (
    pair character varying(64) NOT NULL,
    question_hash character varying(64) NOT NULL,
    is_judge boolean NOT NULL,
    given_by text NOT NULL,
    question text NOT NULL,
    preferred character varying(64),
    left_output character varying(64),
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.run (
    id character varying(64) NOT NULL,
    name text NOT NULL,
    status character varying(16) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    suite text NOT NULL,
    suite_path text,
    repeats integer NOT NULL,
    n_cases integer NOT NULL,
    tags text NOT NULL,
    flow_run_id character varying(64),
    lease_owner text,
    lease_until timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    outcome character varying(16),
    metrics text,
    verdict text,
    stats text,
    error text,
    suite_hash character varying(64),
    cases_hash character varying(64),
    target_hash character varying(64),
    version text,
    cause character varying(16),
    options text,
    rescored_from character varying(64),
    takeovers integer NOT NULL,
    takeovers_left integer NOT NULL
);
CREATE TABLE public.run_case (
    run_id character varying(64) NOT NULL,
    case_index integer NOT NULL,
    case_id text NOT NULL,
    data text NOT NULL
);
CREATE TABLE public.run_request (
    run_id character varying(64) NOT NULL,
    kind character varying(16) NOT NULL,
    caller text,
    idempotency_key character varying(200),
    request_hash character varying(64) NOT NULL,
    request text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    dispatched_at timestamp with time zone
);
CREATE TABLE public.shard (
    run_id character varying(64) NOT NULL,
    shard integer NOT NULL,
    lease_owner text,
    lease_until timestamp with time zone
);
CREATE TABLE public.test_case (
    id character varying(200) NOT NULL,
    data text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
ALTER TABLE ONLY public.audit_entry ALTER COLUMN id SET DEFAULT nextval('public.audit_entry_id_seq'::regclass);
ALTER TABLE ONLY public.label ALTER COLUMN id SET DEFAULT nextval('public.label_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0001');
INSERT INTO public.baseline VALUES ('capitals', 'main', 'a39d4ee042aa4f978097ed9395f57a54', '[]', '2026-11-26 12:41:17.447745+00');
INSERT INTO public.check_result VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 0, 0, 'right', 'b8f1fede5bf8d7e7e1eac80dc8e62a4507b08107be42e263c1eaec2939fb3867', 'contains', 'completed', true, '{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:17.290511Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"phrases":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.066}}', '2026-11-26 12:41:17.290805+00');
INSERT INTO public.check_result VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 0, 0, 'short', 'b9007702446d0e8a63d04fc2dc2e1ee6bf66228640fedc15f21045f16bc5e6c7', 'text_distance', 'completed', true, '{"check_type":"text_distance","status":"completed","results":{"score":0.5882352941176471,"passed":true},"evaluated_at":"2026-11-26T12:41:17.290595Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"expected":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.064}}', '2026-11-26 12:41:17.290805+00');
INSERT INTO public.check_result VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 1, 0, 'right', 'ac4f89913f4f7cbf31f51cae53717a9247f7fb32354b00c14b6eac62cbfccdba', 'contains', 'completed', false, '{"check_type":"contains","status":"completed","results":{"passed":false},"evaluated_at":"2026-11-26T12:41:17.302791Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Kyoto."},"phrases":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.055}}', '2026-11-26 12:41:17.303049+00');
INSERT INTO public.check_result VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 1, 0, 'short', '2058ee1a2b79f06e9e2979725dab7a555646f9a88d0e3f9d94f9ad29c2a7bf7f', 'text_distance', 'completed', true, '{"check_type":"text_distance","status":"completed","results":{"score":0.23529411764705888,"passed":true},"evaluated_at":"2026-11-26T12:41:17.302861Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Kyoto."},"expected":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.059}}', '2026-11-26 12:41:17.303049+00');
INSERT INTO public.check_result VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 2, 0, 'right', 'b3841e2481ed1c578befa377d8691888635d4cbd62c4b6326c84b78aed9c162f', 'contains', 'completed', true, '{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:17.313773Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"phrases":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.05}}', '2026-11-26 12:41:17.31399+00');
INSERT INTO public.check_result VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 2, 0, 'short', 'fc843953743ed3a79a3bdb8f05fa5e3cb78f0eaafbf1203054e1843c3e882a5e', 'text_distance', 'completed', true, '{"check_type":"text_distance","status":"completed","results":{"score":0.47058823529411764,"passed":true},"evaluated_at":"2026-11-26T12:41:17.313823Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"expected":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.041}}', '2026-11-26 12:41:17.31399+00');
INSERT INTO public.check_result VALUES ('a39d4ee042aa4f978097ed9395f57a54', 0, 0, 'right', 'b8f1fede5bf8d7e7e1eac80dc8e62a4507b08107be42e263c1eaec2939fb3867', 'contains', 'completed', true, '{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:17.396727Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"phrases":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.062}}', '2026-11-26 12:41:17.39697+00');
INSERT INTO public.check_result VALUES ('a39d4ee042aa4f978097ed9395f57a54', 0, 0, 'short', 'b9007702446d0e8a63d04fc2dc2e1ee6bf66228640fedc15f21045f16bc5e6c7', 'text_distance', 'completed', true, '{"check_type":"text_distance","status":"completed","results":{"score":0.5882352941176471,"passed":true},"evaluated_at":"2026-11-26T12:41:17.396790Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Paris."},"expected":{"jsonpath":"$.test_case.expected","value":"Paris"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.049}}', '2026-11-26 12:41:17.39697+00');
INSERT INTO public.check_result VALUES ('a39d4ee042aa4f978097ed9395f57a54', 1, 0, 'right', '0dc62d69affc4762829270da53c4891f2a6454904af71e19fb0a1fe2181da7c1', 'contains', 'completed', true, '{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:17.405860Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Tokyo."},"phrases":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.052}}', '2026-11-26 12:41:17.406073+00');
INSERT INTO public.check_result VALUES ('a39d4ee042aa4f978097ed9395f57a54', 1, 0, 'short', 'c346a1a5e70fd34ea269f65eff023774b1522fe7269a92b8d1eee93128052cb1', 'text_distance', 'completed', true, '{"check_type":"text_distance","status":"completed","results":{"score":0.5882352941176471,"passed":true},"evaluated_at":"2026-11-26T12:41:17.405913Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Tokyo."},"expected":{"jsonpath":"$.test_case.expected","value":"Tokyo"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.043}}', '2026-11-26 12:41:17.406073+00');
INSERT INTO public.check_result VALUES ('a39d4ee042aa4f978097ed9395f57a54', 2, 0, 'right', 'b3841e2481ed1c578befa377d8691888635d4cbd62c4b6326c84b78aed9c162f', 'contains', 'completed', true, '{"check_type":"contains","status":"completed","results":{"passed":true},"evaluated_at":"2026-11-26T12:41:17.412394Z","resolved_arguments":{"negate":{"value":false},"case_sensitive":{"value":true},"match_all":{"value":true},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"phrases":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"right","execution_time_ms":0.056}}', '2026-11-26 12:41:17.412608+00');
INSERT INTO public.check_result VALUES ('a39d4ee042aa4f978097ed9395f57a54', 2, 0, 'short', 'fc843953743ed3a79a3bdb8f05fa5e3cb78f0eaafbf1203054e1843c3e882a5e', 'text_distance', 'completed', true, '{"check_type":"text_distance","status":"completed","results":{"score":0.47058823529411764,"passed":true},"evaluated_at":"2026-11-26T12:41:17.412447Z","resolved_arguments":{"metric":{"value":"ratio"},"case_sensitive":{"value":true},"pass_at":{"value":0.1},"text":{"jsonpath":"$.output.value","value":"It is Lima. \u2602"},"expected":{"jsonpath":"$.test_case.expected","value":"Lima"}},"metadata":{"check_version":"1.0.0","check_id":"short","execution_time_ms":0.043}}', '2026-11-26 12:41:17.412608+00');
INSERT INTO public.label VALUES (1, '2026-11-26 12:41:17.461693+00', 'a39d4ee042aa4f978097ed9395f57a54', 1, 1, 'right', 'passed', 'true', 'yes', 'ann', NULL, false);
INSERT INTO public.metric_total VALUES ('suite', 'capitals', '', 1);
INSERT INTO public.metric_total VALUES ('write_seconds', '', '0.01', 2);
INSERT INTO public.metric_total VALUES ('checks', 'capitals', 'failed', 1);
INSERT INTO public.metric_total VALUES ('runs', 'capitals', 'fail', 1);
INSERT INTO public.metric_total VALUES ('calls', 'capitals', 'recorded', 6);
INSERT INTO public.metric_total VALUES ('checks', 'capitals', 'passed', 11);
INSERT INTO public.metric_total VALUES ('write_seconds', '', '0.005', 8);
INSERT INTO public.metric_total VALUES ('write_seconds', '', 'sum', 42934);
INSERT INTO public.metric_total VALUES ('runs', 'capitals', 'pass', 1);
INSERT INTO public.metric_total VALUES ('last_verdict', 'capitals', '', 1795696877426220);
INSERT INTO public.output VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 0, 0, 'fa12c74cf7c1783e6a4fbee2a8b1779f9325b1f860b88a5b0071832bae039302', NULL, '"It is Paris."', '{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}', false, NULL, NULL, '2026-11-26 12:41:17.280826+00');
INSERT INTO public.output VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 1, 0, '39a7fd130a18ec5403a30531eb75643474020631bfa50ed6ba3faf80b5f92029', NULL, '"It is Kyoto."', '{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}', false, NULL, NULL, '2026-11-26 12:41:17.298705+00');
INSERT INTO public.output VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 2, 0, '5d27af0c863a5b7317c3dc94bf4d2482f064fcb32de2e2fbffbe2af0ab440596', NULL, '"It is Lima. \u2602"', '{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}', false, NULL, NULL, '2026-11-26 12:41:17.309547+00');
INSERT INTO public.output VALUES ('a39d4ee042aa4f978097ed9395f57a54', 0, 0, 'fa12c74cf7c1783e6a4fbee2a8b1779f9325b1f860b88a5b0071832bae039302', NULL, '"It is Paris."', '{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}', false, NULL, NULL, '2026-11-26 12:41:17.392783+00');
INSERT INTO public.output VALUES ('a39d4ee042aa4f978097ed9395f57a54', 1, 0, '36f888e0931692bfd59bd983ea8a5b263f3cd20cdf8dcee3e7e6ab6c95e48cb4', NULL, '"It is Tokyo."', '{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}', false, NULL, NULL, '2026-11-26 12:41:17.403001+00');
INSERT INTO public.output VALUES ('a39d4ee042aa4f978097ed9395f57a54', 2, 0, '5d27af0c863a5b7317c3dc94bf4d2482f064fcb32de2e2fbffbe2af0ab440596', NULL, '"It is Lima. \u2602"', '{"latency_ms":0.1,"last_attempt_ms":0.1,"attempts":1}', false, NULL, NULL, '2026-11-26 12:41:17.409973+00');
INSERT INTO public.run VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 'capitals', 'completed', '2026-11-26 12:41:17.224061+00', '2026-11-26 12:41:17.251499+00', '2026-11-26 12:41:17.334928+00', '{"name":"capitals","target":{"recorded":{"path":"outputs.jsonl","output":"$.output"}},"test_cases":[{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}},{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}},{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}],"checks":[{"type":"contains","arguments":{"text":"$.output.value","phrases":"$.test_case.expected"},"id":"right"},{"type":"text_distance","arguments":{"text":"$.output.value","expected":"$.test_case.expected","pass_at":0.1},"id":"short"}]}', '/tmp/tmpb11tcs1_/postgresql/suite.yaml', 1, 3, '[]', NULL, NULL, NULL, NULL, 'fail', '[{"id":"right","check":"right","value":0.6666666666666666,"stderr":0.3333333333333333,"low":0.20765960080204782,"high":0.9385080552796038,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0},{"id":"short","check":"short","value":1.0,"stderr":0.0,"low":0.4385029682449546,"high":1.0,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0}]', '{"outcome":"fail","gate":"Every check must pass.","reasons":["right: 1 of 3 results failed.","short: 3 of 3 results passed."],"rules":[{"rule":"right: every case passes","check":"right","outcome":"fail","reason":"right: 1 of 3 results failed."},{"rule":"short: every case passes","check":"short","outcome":"pass","reason":"short: 3 of 3 results passed."}],"not_judged":[],"blocks":true,"slices":[],"confusions":[],"warnings":[]}', '{"calls":3,"failed_calls":0,"checks":6,"passed":5,"failed":1,"errors":0}', NULL, '8bc89a50b794de48ee5d77dc93236a8f5b4e6d3414e02cc9a49afc309e9e78ed', '5353a49ccc908df7cc951a70ff8d77589545901561d42975fa966c5baf86f298', 'e86d7f171af6588750d56d744087d81ba6eff1b579a5d177f0d2c1da4193f9fd', NULL, 'command', NULL, NULL, 0, 0);
INSERT INTO public.run VALUES ('a39d4ee042aa4f978097ed9395f57a54', 'capitals', 'completed', '2026-11-26 12:41:17.353593+00', '2026-11-26 12:41:17.373042+00', '2026-11-26 12:41:17.42622+00', '{"name":"capitals","target":{"recorded":{"path":"outputs.jsonl","output":"$.output"}},"test_cases":[{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}},{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}},{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}],"checks":[{"type":"contains","arguments":{"text":"$.output.value","phrases":"$.test_case.expected"},"id":"right"},{"type":"text_distance","arguments":{"text":"$.output.value","expected":"$.test_case.expected","pass_at":0.1},"id":"short"}]}', '/tmp/tmpb11tcs1_/postgresql/suite.yaml', 1, 3, '[]', NULL, NULL, NULL, NULL, 'pass', '[{"id":"right","check":"right","value":1.0,"stderr":0.0,"low":0.4385029682449546,"high":1.0,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0},{"id":"short","check":"short","value":1.0,"stderr":0.0,"low":0.4385029682449546,"high":1.0,"confidence":0.95,"method":"wilson","n_expected":3,"n_completed":3,"n_error":0,"n_skipped":0}]', '{"outcome":"pass","gate":"Every check must pass.","reasons":["right: 3 of 3 results passed.","short: 3 of 3 results passed."],"rules":[{"rule":"right: every case passes","check":"right","outcome":"pass","reason":"right: 3 of 3 results passed."},{"rule":"short: every case passes","check":"short","outcome":"pass","reason":"short: 3 of 3 results passed."}],"not_judged":[],"blocks":false,"slices":[],"confusions":[],"warnings":[]}', '{"calls":3,"failed_calls":0,"checks":6,"passed":6,"failed":0,"errors":0}', NULL, '8bc89a50b794de48ee5d77dc93236a8f5b4e6d3414e02cc9a49afc309e9e78ed', '5353a49ccc908df7cc951a70ff8d77589545901561d42975fa966c5baf86f298', '06ee751368b8c82880c29d545da9b9aa6d8578260c49ceba1e14b3260942ec86', NULL, 'command', NULL, NULL, 0, 0);
INSERT INTO public.run_case VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 0, 'france', '{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}}');
INSERT INTO public.run_case VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 1, 'japan', '{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}}');
INSERT INTO public.run_case VALUES ('7fdbde039a5f4fffb2db434f267e8f80', 2, 'peru', '{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}');
INSERT INTO public.run_case VALUES ('a39d4ee042aa4f978097ed9395f57a54', 0, 'france', '{"id":"france","input":"The capital of France?","expected":"Paris","metadata":{"continent":"Europe"}}');
INSERT INTO public.run_case VALUES ('a39d4ee042aa4f978097ed9395f57a54', 1, 'japan', '{"id":"japan","input":"The capital of Japan?","expected":"Tokyo","metadata":{"continent":"Asia"}}');
INSERT INTO public.run_case VALUES ('a39d4ee042aa4f978097ed9395f57a54', 2, 'peru', '{"id":"peru","input":"The capital of Peru? \u2602","expected":"Lima","metadata":{"continent":"South America"}}');
SELECT pg_catalog.setval('public.audit_entry_id_seq', 1, false);
SELECT pg_catalog.setval('public.label_id_seq', 1, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.api_key
    ADD CONSTRAINT pk_api_key PRIMARY KEY (id);
ALTER TABLE ONLY public.audit_entry
    ADD CONSTRAINT pk_audit_entry PRIMARY KEY (id);
ALTER TABLE ONLY public.baseline
    ADD CONSTRAINT pk_baseline PRIMARY KEY (suite, name);
ALTER TABLE ONLY public.blob
    ADD CONSTRAINT pk_blob PRIMARY KEY (digest);
ALTER TABLE ONLY public.cached_response
    ADD CONSTRAINT pk_cached_response PRIMARY KEY (key);
ALTER TABLE ONLY public.calibration
    ADD CONSTRAINT pk_calibration PRIMARY KEY (id);
ALTER TABLE ONLY public.check_result
    ADD CONSTRAINT pk_check_result PRIMARY KEY (run_id, case_index, repeat, check_id);
ALTER TABLE ONLY public.evalguard_report
    ADD CONSTRAINT pk_evalguard_report PRIMARY KEY (id);
ALTER TABLE ONLY public.evalguard_report_metric
    ADD CONSTRAINT pk_evalguard_report_metric PRIMARY KEY (report_id, metric_index);
ALTER TABLE ONLY public.evalguard_run
    ADD CONSTRAINT pk_evalguard_run PRIMARY KEY (run_id);
ALTER TABLE ONLY public.grader
    ADD CONSTRAINT pk_grader PRIMARY KEY (id);
ALTER TABLE ONLY public.label
    ADD CONSTRAINT pk_label PRIMARY KEY (id);
ALTER TABLE ONLY public.label_draw
    ADD CONSTRAINT pk_label_draw PRIMARY KEY (id);
ALTER TABLE ONLY public.metric_total
    ADD CONSTRAINT pk_metric_total PRIMARY KEY (metric, suite, label);
ALTER TABLE ONLY public.output
    ADD CONSTRAINT pk_output PRIMARY KEY (run_id, case_index, repeat);
ALTER TABLE ONLY public.page_session
    ADD CONSTRAINT pk_page_session PRIMARY KEY (id_hash);
ALTER TABLE ONLY public.preference
    ADD CONSTRAINT pk_preference PRIMARY KEY (pair, question_hash, is_judge, given_by);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT pk_run PRIMARY KEY (id);
ALTER TABLE ONLY public.run_case
    ADD CONSTRAINT pk_run_case PRIMARY KEY (run_id, case_index);
ALTER TABLE ONLY public.run_request
    ADD CONSTRAINT pk_run_request PRIMARY KEY (run_id);
ALTER TABLE ONLY public.shard
    ADD CONSTRAINT pk_shard PRIMARY KEY (run_id, shard);
ALTER TABLE ONLY public.test_case
    ADD CONSTRAINT pk_test_case PRIMARY KEY (id);
ALTER TABLE ONLY public.run_case
    ADD CONSTRAINT uq_run_case_run_id_case_id UNIQUE (run_id, case_id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT uq_run_flow_run_id UNIQUE (flow_run_id);
ALTER TABLE ONLY public.run_request
    ADD CONSTRAINT uq_run_request_idempotency_key UNIQUE (idempotency_key);
CREATE INDEX ix_audit_entry_at ON public.audit_entry USING btree (at);
CREATE INDEX ix_cached_response_model ON public.cached_response USING btree (model);
CREATE INDEX ix_cached_response_responded_at ON public.cached_response USING btree (responded_at);
CREATE INDEX ix_calibration_judge ON public.calibration USING btree (judge, rubric);
CREATE INDEX ix_check_result_outcome ON public.check_result USING btree (run_id, status, passed, case_index, repeat);
CREATE INDEX ix_evalguard_report_imported_at ON public.evalguard_report USING btree (imported_at);
CREATE INDEX ix_evalguard_report_metric_metric ON public.evalguard_report_metric USING btree (metric, report_id);
CREATE INDEX ix_evalguard_report_metric_task ON public.evalguard_report_metric USING btree (task_ref, metric, report_id);
CREATE INDEX ix_evalguard_report_model_name ON public.evalguard_report USING btree (model_name);
CREATE INDEX ix_evalguard_report_report_id ON public.evalguard_report USING btree (report_id);
CREATE INDEX ix_label_draw_run_id ON public.label_draw USING btree (run_id);
CREATE INDEX ix_label_run_id ON public.label USING btree (run_id, case_index);
CREATE INDEX ix_output_blob ON public.output USING btree (blob) WHERE (blob IS NOT NULL);
CREATE INDEX ix_output_content_hash ON public.output USING btree (content_hash);
CREATE INDEX ix_page_session_key_id ON public.page_session USING btree (key_id, created_at);
CREATE INDEX ix_run_created_at ON public.run USING btree (created_at);
CREATE INDEX ix_run_name ON public.run USING btree (name);
CREATE INDEX ix_run_request_created_at ON public.run_request USING btree (created_at);
CREATE INDEX ix_run_status ON public.run USING btree (status);
CREATE INDEX ix_test_case_created_at ON public.test_case USING btree (created_at);
CREATE TRIGGER audit_entry_unchanged BEFORE UPDATE ON public.audit_entry FOR EACH ROW EXECUTE FUNCTION public.audit_entry_unchanged();
ALTER TABLE ONLY public.baseline
    ADD CONSTRAINT fk_baseline_run FOREIGN KEY (run_id) REFERENCES public.run(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.check_result
    ADD CONSTRAINT fk_check_result_run_case FOREIGN KEY (run_id, case_index) REFERENCES public.run_case(run_id, case_index) ON DELETE CASCADE;
ALTER TABLE ONLY public.evalguard_report_metric
    ADD CONSTRAINT fk_evalguard_report_metric_evalguard_report FOREIGN KEY (report_id) REFERENCES public.evalguard_report(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.evalguard_run
    ADD CONSTRAINT fk_evalguard_run_run FOREIGN KEY (run_id) REFERENCES public.run(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.label_draw
    ADD CONSTRAINT fk_label_draw_run FOREIGN KEY (run_id) REFERENCES public.run(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.label
    ADD CONSTRAINT fk_label_label_draw FOREIGN KEY (draw_id) REFERENCES public.label_draw(id) ON DELETE SET NULL;
ALTER TABLE ONLY public.label
    ADD CONSTRAINT fk_label_run_case FOREIGN KEY (run_id, case_index) REFERENCES public.run_case(run_id, case_index) ON DELETE CASCADE;
ALTER TABLE ONLY public.output
    ADD CONSTRAINT fk_output_blob FOREIGN KEY (blob) REFERENCES public.blob(digest);
ALTER TABLE ONLY public.output
    ADD CONSTRAINT fk_output_run_case FOREIGN KEY (run_id, case_index) REFERENCES public.run_case(run_id, case_index) ON DELETE CASCADE;
ALTER TABLE ONLY public.page_session
    ADD CONSTRAINT fk_page_session_api_key FOREIGN KEY (key_id) REFERENCES public.api_key(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.run_case
    ADD CONSTRAINT fk_run_case_run FOREIGN KEY (run_id) REFERENCES public.run(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.run_request
    ADD CONSTRAINT fk_run_request_run FOREIGN KEY (run_id) REFERENCES public.run(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.shard
    ADD CONSTRAINT fk_shard_run FOREIGN KEY (run_id) REFERENCES public.run(id) ON DELETE CASCADE;
