-- Tables shaped as those of TPC-H, with made-up rows.
create table supplier as
  select g as s_suppkey, g % 25 as s_nationkey, round((random() * 9000)::numeric, 2) as s_acctbal, repeat('s', 90) as s_comment
  from generate_series(1, 1000) g;
create table customer as
  select g as c_custkey, g % 25 as c_nationkey, (g * 7 % 5) as c_mktsegment, round((random() * 9000)::numeric, 2) as c_acctbal,
         repeat('c', 110) as c_comment
  from generate_series(1, 15000) g;
create table part as
  select g as p_partkey, g % 25 as p_brand, g % 40 as p_container, g % 50 + 1 as p_size, repeat('p', 80) as p_comment
  from generate_series(1, 20000) g;
create table orders as
  select g as o_orderkey, 1 + floor(random() * 15000)::int as o_custkey,
         date '1992-01-01' + floor(random() * 2405)::int as o_orderdate, g % 5 as o_orderpriority,
         round((random() * 400000)::numeric, 2) as o_totalprice, repeat('o', 60) as o_comment
  from generate_series(1, 150000) g;
create table lineitem as
  select o_orderkey as l_orderkey, n as l_linenumber, 1 + floor(random() * 20000)::int as l_partkey,
         1 + floor(random() * 1000)::int as l_suppkey, 1 + floor(random() * 50)::int as l_quantity,
         round((random() * 90000)::numeric, 2) as l_extendedprice, round((random() * 0.1)::numeric, 2) as l_discount,
         o_orderdate + 1 + floor(random() * 120)::int as l_shipdate, (o_orderkey + n) % 3 as l_returnflag, repeat('l', 40) as l_comment
  from orders, generate_series(1, 4) n;
alter table supplier add primary key (s_suppkey);
alter table customer add primary key (c_custkey);
alter table part add primary key (p_partkey);
alter table orders add primary key (o_orderkey);
alter table lineitem add primary key (l_orderkey, l_linenumber);
create index on lineitem (l_partkey);
create index on lineitem (l_shipdate);
create index on orders (o_custkey);
create index on orders (o_orderdate);
analyze;
